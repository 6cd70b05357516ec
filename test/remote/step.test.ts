import { type ChildProcess, spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { programWith, stepArguments, type StepPlace } from "../../components/step";
import { type Ended, processes, Sandbox, until } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

const place: StepPlace = { directory: "work", node: "spark-2", step: "image-pull", timeoutSeconds: 10, mode: "create" };

/** Starts a step as the operator does; its program goes in by stdin, with this text as the script. */
function start(
  text: string,
  changes: Partial<StepPlace> = {},
  args: string[] = [],
  script = "script.sh",
  environment: NodeJS.ProcessEnv = {},
): ChildProcess {
  const [python = "", ...rest] = stepArguments({ script, args }, { ...place, ...changes });
  const child = spawn(python, rest, { cwd: box.home, env: { ...box.environment(), ...environment } });
  child.stdin.end(programWith({ [path.basename(script)]: text }));
  return child;
}

function ended(child: ChildProcess): Promise<Ended> {
  const output = { stdout: "", stderr: "" };
  child.stdout?.on("data", (text: Buffer) => (output.stdout += text.toString()));
  child.stderr?.on("data", (text: Buffer) => (output.stderr += text.toString()));
  return new Promise((resolve) => {
    child.on("close", (code) => {
      resolve({ code, ...output });
    });
  });
}

/** Runs a step whose script is this text. */
const step = (script: string, changes: Partial<StepPlace> = {}, args: string[] = []) =>
  ended(start(script, changes, args));

/** What is in the deployment's folder. */
const left = () => fs.readdirSync(path.join(box.home, "work")).sort();

test("output and success pass through, and nothing of the script is left", async () => {
  expect(await step("echo out; echo err >&2")).toEqual({ code: 0, stdout: "out\n", stderr: "err\n" });
  expect(left()).toEqual(["nodes", "results"]);
  expect(fs.statSync(path.join(box.home, "work")).mode & 0o777).toBe(0o700);
});

test("a failure names node and step, keeps the exit code, and is not remembered", async () => {
  const result = { code: 7, stdout: "", stderr: "why\nimage-pull on spark-2: failed (exit code 7)\n" };
  expect(await step("echo why >&2; exit 7")).toEqual(result);
  expect(left()).toEqual(["nodes", "results"]);
  expect(await step("echo why >&2; exit 7", { mode: "again" })).toEqual(result);
});

test("arguments arrive as they are", async () => {
  const words = ["a b", "$HOME", "'\"", "*", "\n", "é \u{1f600}", "-x", ""];
  const show = "import json, sys\nprint(json.dumps(sys.argv[1:]))\n";
  const shown = await ended(start(show, {}, words, "show.py"));
  expect(JSON.parse(shown.stdout)).toEqual(words);
});

test("a known result is told again without a run, a changed call or a lost result makes one", async () => {
  const count = 'echo x >>runs; wc -l <runs; echo "$@"';
  const again = (...args: string[]) => step(count, { mode: "again" }, args);
  expect((await step(count, {}, ["a"])).stdout).toBe("1\na\n");
  expect((await again("a")).stdout).toBe("1\na\n");
  // Also when only the script's text is another one.
  expect((await step(`# a comment\n${count}`, { mode: "again" }, ["a"])).stdout).toBe("1\na\n");
  expect((await again("b")).stdout).toBe("2\nb\n");
  expect((await again("b")).stdout).toBe("2\nb\n");
  for (const record of ["", "{", "[]", '{"call": 1}', undefined]) {
    const before = box.read("runs");
    if (record === undefined) fs.rmSync(path.join(box.home, "work"), { recursive: true });
    else box.write("work/results/image-pull.json", record);
    await again("b");
    expect(box.read("runs")).toBe(`${before}x\n`);
  }
  expect((await step(count, {}, ["b"])).stdout).toBe("8\nb\n");
});

test("each step has a result of its own", async () => {
  await step("echo one");
  expect((await step("echo two", { mode: "again", step: "image-copy" })).stdout).toBe("two\n");
  expect((await step("exit 1", { mode: "again" })).stdout).toBe("one\n");
});

test("a deletion is not done where a node of another name works in the folder too", async () => {
  const skipped = (by: string) => ({
    code: 0,
    stdout: "",
    stderr: `image-pull on spark-2: nothing to do, this machine is ${by} now\n`,
  });
  await step("true");
  await step("true", { node: "spark-b" });
  expect(await step("echo gone >gone", { mode: "delete" })).toEqual(skipped("spark-b"));
  expect(await step("echo gone >gone", { mode: "leave" })).toEqual(skipped("spark-b"));
  // A rename that is taken back before its deletions: the first name did not run again.
  await step("true");
  await step("true", { node: "spark-c" });
  await step("echo gone >gone", { mode: "leave", node: "spark-c" });
  expect(fs.existsSync(path.join(box.home, "gone"))).toBe(false);
  await step("true", { mode: "leave" });
  expect((await step("echo gone >gone", { mode: "delete", node: "spark-b" })).code).toBe(0);
  expect(box.read("gone")).toBe("gone\n");
});

test("a node whose first step failed is not taken for the machine's new name", async () => {
  await step("true");
  await step("exit 1", { node: "spark-b" });
  expect((await step("echo gone >gone", { mode: "delete" })).code).toBe(0);
  expect(box.read("gone")).toBe("gone\n");
});

test("a deletion is done where nothing is known, and its failure by the disk names node and step", async () => {
  expect((await step("echo gone >gone", { mode: "delete" })).code).toBe(0);
  expect(box.read("gone")).toBe("gone\n");
  fs.rmSync(path.join(box.home, "work"), { recursive: true });
  box.write("work", "a file");
  expect(await step("true")).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^image-pull on spark-2: \[Errno 17\] File exists: 'work'\n$/) as string,
  });
});

test("another machine with the same home is in nobody's way, and keeps its folder", async () => {
  await step("true");
  box.write("work/nodes/spark-1@another-machine", "");
  expect((await step("echo gone >gone", { mode: "delete" })).code).toBe(0);
  expect(box.read("gone")).toBe("gone\n");
  expect((await step("ls work/nodes", { mode: "leave" })).stdout).toBe("spark-1@another-machine\n");
});

test("a run that failed with other arguments takes the remembered result with it", async () => {
  const script = 'echo "$1" >state; [ "$1" != b ]';
  for (const word of ["a", "b", "a"]) await step(script, { mode: "again" }, [word]);
  expect(box.read("state")).toBe("a\n");
});

test("what a killed run left is removed by the next, and its script has ended with it", async () => {
  const child = start("echo $$ >pid; sleep 60");
  await until(() => fs.existsSync(path.join(box.home, "pid")) && box.read("pid").endsWith("\n"));
  const end = ended(child);
  child.kill("SIGKILL");
  await until(() => processes((id) => id === box.read("pid").trim()).length === 0);
  for (const pid of processes((_, group) => group === box.read("pid").trim())) process.kill(Number(pid), "SIGKILL");
  await end;
  expect(left()).toHaveLength(3);
  await step("true");
  expect(left()).toEqual(["nodes", "results"]);
});

test("a step that waits for an earlier run ends with its time and with its connection", async () => {
  const first = ended(start("echo on >on; sleep 6"));
  await until(() => fs.existsSync(path.join(box.home, "on")));
  expect(await step("echo second >second", { timeoutSeconds: 1 })).toEqual({
    code: 124,
    stdout: "",
    stderr: "image-pull on spark-2: not begun, an earlier run of it still goes on after 1 s\n",
  });
  const file = box.write("program", programWith({ "script.sh": "echo second >second" }));
  const argv = stepArguments({ script: "script.sh", args: [] }, { ...place, timeoutSeconds: 60 });
  const parent = spawn("sh", ["-c", `${argv.join(" ")} <'${file}'; true`], { cwd: box.home, env: box.environment() });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  parent.kill("SIGKILL");
  await first;
  await new Promise((resolve) => setTimeout(resolve, 1500));
  expect(fs.existsSync(path.join(box.home, "second"))).toBe(false);
});

test("a step waits for the end of the same one, whose connection may have been lost", async () => {
  const order = (name: string) => `echo ${name} >>order; sleep 0.7; echo ${name} >>order`;
  const first = ended(start(order("a")));
  await until(() => fs.existsSync(path.join(box.home, "order")));
  await Promise.all([first, step(order("b")), step("true", { step: "another" })]);
  expect(box.read("order")).toBe("a\na\nb\nb\n");
});

test("when the time is up the work is stopped with its children", async () => {
  const result = await step("echo $$ > pid; sleep 60 & wait", { timeoutSeconds: 0.5 });
  expect(result).toEqual({
    code: 124,
    stdout: "",
    stderr: "image-pull on spark-2: stopped, it took longer than 0.5 s\n",
  });
  await until(() => groupOf(box.read("pid")).length === 0);
  expect(left()).toEqual(["nodes", "results"]);
});

test.each(["SIGTERM", "SIGHUP", "SIGINT"] as const)("on %s the work is stopped with its children", async (signal) => {
  const child = start("echo $$ > pid; sleep 60 & wait");
  await until(() => fs.existsSync(path.join(box.home, "pid")) && box.read("pid").endsWith("\n"));
  const end = ended(child);
  child.kill(signal);
  await end;
  await until(() => groupOf(box.read("pid")).length === 0);
  expect(left()).toEqual(["nodes", "results"]);
});

test("a signal that comes as soon as the work has begun stops it, too", async () => {
  // Handlers take their time here, as they may on a busy node.
  const slow =
    "import signal, time\nplain = signal.signal\nsignal.signal = lambda *how: (time.sleep(0.2), plain(*how))\n";
  const environment = { PYTHONPATH: path.dirname(box.write("slow/sitecustomize.py", slow)) };
  const child = start("echo $$ > pid; kill -TERM $PPID; sleep 60 & wait", {}, [], "script.sh", environment);
  expect((await ended(child)).code).toBe(143);
  await until(() => groupOf(box.read("pid")).length === 0);
  expect(left()).toEqual(["nodes", "results"]);
});

test("a child that ignores the kind signal is killed, though its leader is gone", async () => {
  // The leader ends at once on SIGTERM; its child has ended nothing when the grace is over.
  const deaf = "trap '' TERM; while :; do sleep 0.2; done";
  const result = await step(`echo $$ > pid; sh -c "${deaf}" & wait`, { timeoutSeconds: 1 });
  expect(result.code).toBe(124);
  await until(() => groupOf(box.read("pid")).length === 0);
});

test("a child that takes its time to end is let end, though its leader is gone", async () => {
  const slow = "trap 'sleep 1; echo ended > ended; exit' TERM; while :; do sleep 0.1; done";
  await step(`echo $$ > pid; sh -c "${slow}" & wait`, { timeoutSeconds: 1 });
  expect(box.read("ended")).toBe("ended\n");
});

test("a step that leaves something in the background returns", async () => {
  const started = Date.now();
  expect((await step("sleep 30 & echo $! >pid; echo done")).stdout).toBe("done\n");
  expect(Date.now() - started).toBeLessThan(10_000);
  process.kill(Number(box.read("pid")), "SIGKILL");
});

test("when the connection is gone the work is stopped", async () => {
  // A shell in the place of sshd: the step's parent, which is killed.
  const text = programWith({ "script.sh": "echo $$ > pid; sleep 60 & wait" });
  const file = box.write("program", text);
  const argv = stepArguments({ script: "script.sh", args: [] }, { ...place, timeoutSeconds: 60 });
  const parent = spawn("sh", ["-c", `${argv.join(" ")} <'${file}'; true`], {
    cwd: box.home,
    env: box.environment(),
    stdio: "ignore",
  });
  await until(() => fs.existsSync(path.join(box.home, "pid")) && box.read("pid").endsWith("\n"));
  parent.kill("SIGKILL");
  await until(() => groupOf(box.read("pid")).length === 0);
});

/** Processes of a group that are alive. */
function groupOf(pid: string): string[] {
  return processes((_, group) => group === pid.trim());
}

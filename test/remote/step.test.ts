import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { processes, Sandbox, until } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

const step = (seconds: number, ...argv: string[]) =>
  box.run("step.py", ["spark-2", "image-pull", String(seconds), "--", ...argv]);

test("output and success pass through", async () => {
  expect(await step(10, "sh", "-c", "echo out; echo err >&2")).toEqual({ code: 0, stdout: "out\n", stderr: "err\n" });
});

test("a failure names node and step, and keeps the exit code", async () => {
  expect(await step(10, "sh", "-c", "echo why >&2; exit 7")).toEqual({
    code: 7,
    stdout: "",
    stderr: "why\nimage-pull on spark-2: failed (exit code 7)\n",
  });
});

test("when the time is up the work is stopped with its children", async () => {
  const result = await step(0.5, "sh", "-c", "echo $$ > pid; sleep 60 & wait");
  expect(result).toEqual({
    code: 124,
    stdout: "",
    stderr: "image-pull on spark-2: stopped, it took longer than 0.5 s\n",
  });
  expect(groupOf(box.read("pid"))).toEqual([]);
});

test.each(["SIGTERM", "SIGHUP", "SIGINT"] as const)("on %s the work is stopped with its children", async (signal) => {
  const child = start();
  await until(() => fs.existsSync(path.join(box.home, "pid")) && box.read("pid").endsWith("\n"));
  const ended = new Promise((resolve) => child.on("close", resolve));
  child.kill(signal);
  await ended;
  expect(groupOf(box.read("pid"))).toEqual([]);
});

test("a child that ignores the kind signal is killed, though its leader is gone", async () => {
  // The leader ends at once on SIGTERM; its child has ended nothing when the grace is over.
  const deaf = "trap '' TERM; while :; do sleep 0.2; done";
  const result = await step(1, "sh", "-c", `echo $$ > pid; sh -c "${deaf}" & wait`);
  expect(result.code).toBe(124);
  expect(groupOf(box.read("pid"))).toEqual([]);
});

test("a child that takes its time to end is let end, though its leader is gone", async () => {
  const slow = "trap 'sleep 1; echo ended > ended; exit' TERM; while :; do sleep 0.1; done";
  await step(1, "sh", "-c", `echo $$ > pid; sh -c "${slow}" & wait`);
  expect(box.read("ended")).toBe("ended\n");
});

test("when the connection is gone the work is stopped", async () => {
  // A shell in the place of sshd: the step's parent, which is killed.
  const parent = spawn(
    "sh",
    [
      "-c",
      `python3 -B '${path.resolve("scripts/remote/step.py")}' n s 60 -- sh -c 'echo $$ > pid; sleep 60 & wait'; true`,
    ],
    {
      cwd: box.home,
      env: box.environment(),
      stdio: "ignore",
    },
  );
  await until(() => fs.existsSync(path.join(box.home, "pid")) && box.read("pid").endsWith("\n"));
  parent.kill("SIGKILL");
  await until(() => groupOf(box.read("pid")).length === 0);
});

function start() {
  return spawn(
    "python3",
    ["-B", path.resolve("scripts/remote/step.py"), "n", "s", "60", "--", "sh", "-c", "echo $$ > pid; sleep 60 & wait"],
    {
      cwd: box.home,
      env: box.environment(),
      stdio: "ignore",
    },
  );
}

/** Processes of a group that are alive. */
function groupOf(pid: string): string[] {
  return processes((_, group) => group === pid.trim());
}

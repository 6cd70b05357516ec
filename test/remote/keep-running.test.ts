import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { keptRunning } from "../../components/keepRunning";
import { type Ended, Sandbox, until } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

/** The engine's container: its starts are noted in the sandbox. */
function argv(...engine: string[]): string[] {
  return keptRunning(engine).map((word) => word.replace("/var/tmp/", `${box.home}/`));
}

const keep = (...engine: string[]): Promise<Ended> => box.exec(argv(...engine));
const starts = () => path.join(box.home, "dgx-spark-serving-starts");

test("the engine gets its arguments as they are, and what it says is passed on", async () => {
  const words = ["a b", "$HOME", "'\"", "*", ""];
  const show = "import json, sys; print(json.dumps(sys.argv[1:])); print('why', file=sys.stderr); sys.exit(3)";
  const { code, stdout, stderr } = await keep("python3", "-c", show, ...words);
  expect([code, JSON.parse(stdout), stderr]).toEqual([3, words, "why\n"]);
});

test("an end that the engine calls a success is a failure, so that it is started again", async () => {
  expect((await keep("true")).code).toBe(1);
});

test("after five ends in two hours it is not started again, and says so", async () => {
  for (let start = 1; start <= 5; start++) expect((await keep("sh", "-c", "echo x >>ran; exit 7")).code).toBe(7);
  expect(await keep("sh", "-c", "echo x >>ran; exit 7")).toEqual({
    code: 0,
    stdout: "",
    stderr:
      "dgx-spark-serving: the engine ended 5 times within 120 minutes and is not started again. " +
      "Why is above; after mending it: pulumi up --refresh\n",
  });
  expect(box.read("ran")).toBe("x\n".repeat(5));
  // Started by hand it tries anew.
  expect((await keep("sh", "-c", "exit 7")).code).toBe(7);
});

test("a cache that the last start may have broken is gone for the next", async () => {
  box.write("cache/vllm/compiled.py", "");
  const start = () =>
    box.exec(argv("sh", "-c", 'ls "$VLLM_CACHE_ROOT"; exit 7'), { VLLM_CACHE_ROOT: `${box.home}/cache` });
  expect((await start()).stdout).toBe("vllm\n");
  expect((await start()).stdout).toBe("");
  expect(fs.existsSync(path.join(box.home, "cache"))).toBe(false);
});

test("ends of long ago, and of a clock that was ahead, do not count", async () => {
  const now = Math.floor(Date.now() / 1000);
  fs.writeFileSync(starts(), [7300, 7250, 7201, -86400, 100, 50].map((ago) => `${String(now - ago)}\n`).join(""));
  expect((await keep("sh", "-c", "exit 7")).code).toBe(7);
  expect(fs.readFileSync(starts(), "utf8").trim().split("\n")).toHaveLength(3);
});

test("told to end, the engine ends in its own time, and that is no success", async () => {
  const slow = "trap 'sleep 0.5; echo ended >ended; exit 0' TERM; echo on >on; while :; do sleep 0.1; done";
  const [program = "", ...args] = argv("sh", "-c", slow);
  const child = spawn(program, args, { cwd: box.home, env: box.environment(), stdio: "ignore" });
  const code = new Promise((resolve) => child.on("close", resolve));
  await until(() => fs.existsSync(path.join(box.home, "on")));
  child.kill("SIGTERM");
  expect(await code).toBe(1);
  expect(box.read("ended")).toBe("ended\n");
});

test("comments and blank lines are no part of the container", () => {
  const [, , text = ""] = keptRunning(["x"]);
  expect(text).not.toMatch(/^\s*(#|$)/m);
  expect(text).toContain('"$@" &\n');
});

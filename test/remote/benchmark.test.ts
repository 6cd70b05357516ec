import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseBenchmark } from "../../components/benchmark";
import { Sandbox } from "./sandbox";

const key = "a-canary-key";
const scenario = { name: "concurrent", requests: 4, maxConcurrency: 2, inputTokens: 64, outputTokens: 8 };
const raw = {
  completed: 4,
  failed: 0,
  errors: ["", "", "", ""],
  duration: 2,
  total_output_tokens: 32,
  request_throughput: 2,
  output_throughput: 16,
  total_token_throughput: 144,
  ...Object.fromEntries(
    ["ttft", "tpot", "itl"].flatMap((metric) =>
      ["mean", "median", "p99"].map((figure, index) => [`${figure}_${metric}_ms`, metric.charCodeAt(1) + index]),
    ),
  ),
};

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

/** The serving image: the load tool writes `result`, or fails with `exitCode`. */
function image(result: Record<string, unknown>, exitCode = 0): void {
  box.write("result.json", result);
  box.write(
    "docker-world/exec",
    `#!/bin/sh
case "$*" in
  *printenv*) echo ${key} ;;
  *--version*) echo "vllm 0.32.0" ;;
  *"bench serve"*) [ "$OPENAI_API_KEY" = ${key} ] || exit 9; echo "a line of the tool"; exit ${exitCode} ;;
  *" cat "*) cat ${path.join(box.home, "result.json")} ;;
  *" rm "*) ;;
  *) exit 8 ;;
esac
`,
    0o755,
  );
}

const driver = (...args: string[]) =>
  box.exec(["python3", "-B", path.resolve("scripts/benchmark/benchmark.py"), ...args]);
const run = () => driver("run", "benchmark.json", "server", "8000", "tiny", "/models/tiny", JSON.stringify([scenario]));

test("figures have units in their names, and are shown again without a run", async () => {
  image(raw);
  const { code, stdout, stderr } = await run();
  expect(stderr).toBe(
    "concurrent: 4 requests, 2 at once\nconcurrent: 16.0 tokens/s, TTFT 117 ms, TPOT 113.0 ms (medians)\n",
  );
  expect(code).toBe(0);
  const { scenarios, ...method } = parseBenchmark(stdout);
  expect(method).toEqual({
    tool: "vllm bench serve 0.32.0",
    model: "tiny",
    startedAt: expect.stringMatching(/^20\d\d-.*\+00:00$/) as string,
  });
  expect(scenarios).toEqual([
    {
      name: "concurrent",
      maxConcurrency: 2,
      inputTokensPerRequest: 64,
      outputTokensPerRequest: 8,
      completedRequests: 4,
      failedRequests: 0,
      durationSeconds: 2,
      requestsPerSecond: 2,
      outputTokensPerSecond: 16,
      totalTokensPerSecond: 144,
      ttftMeanMilliseconds: 116,
      ttftMedianMilliseconds: 117,
      ttftP99Milliseconds: 118,
      tpotMeanMilliseconds: 112,
      tpotMedianMilliseconds: 113,
      tpotP99Milliseconds: 114,
      itlMeanMilliseconds: 116,
      itlMedianMilliseconds: 117,
      itlP99Milliseconds: 118,
    },
  ]);
  const calls = box.read("docker-world/calls.log");
  expect(calls).not.toContain(key);
  expect((await driver("show", "benchmark.json")).stdout).toBe(stdout);
  expect(box.read("docker-world/calls.log")).toBe(calls);
});

test("the load tool is asked for what the scenario says", async () => {
  image(raw);
  await run();
  const bench =
    box
      .read("docker-world/calls.log")
      .split("\n")
      .find((line) => line.includes('"bench"')) ?? "[]";
  expect((JSON.parse(bench) as string[]).slice(8)).toEqual([
    ...[
      "vllm",
      "bench",
      "serve",
      "--backend",
      "vllm",
      "--base-url",
      "http://127.0.0.1:8000",
      "--model",
      "tiny",
      "--tokenizer",
      "/models/tiny",
    ],
    ...[
      "--dataset-name",
      "random",
      "--ignore-eos",
      "--random-input-len",
      "64",
      "--random-output-len",
      "8",
      "--num-prompts",
      "4",
    ],
    ...["--max-concurrency", "2", "--num-warmups", "2", "--seed", "0", "--disable-tqdm"],
    ...["--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99", "--save-result", "--save-detailed"],
    ...["--result-dir", "/tmp", "--result-filename", "dgx-spark-benchmark-concurrent.json"],
  ]);
});

test.each<[string, Record<string, unknown>, RegExp]>([
  [
    "failed requests",
    { completed: 3, failed: 1, errors: ["", "Traceback\nConnectionError: refused", "", ""] },
    /3 of 4 requests completed, 1 failed\. ConnectionError: refused/,
  ],
  ["requests that are not counted at all", { completed: 3, failed: undefined }, /3 of 4 requests completed, 1 failed/],
  ["every request failed", { completed: 0, failed: 4, output_throughput: 0 }, /0 of 4 requests completed, 4 failed/],
  ["empty answers", { total_output_tokens: 0 }, /0 tokens generated, 32 were asked for/],
  ["answers cut short", { total_output_tokens: 31 }, /31 tokens generated, 32 were asked for/],
])("%s fail the run, and nothing is kept", async (_, change, message) => {
  image({ ...raw, ...change });
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(message);
  expect(fs.readdirSync(box.home)).not.toContain("benchmark.json");
});

test("a load tool that fails fails the run, with its last lines", async () => {
  image(raw, 1);
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain("a line of the tool\nconcurrent: the load tool failed, its last lines are above\n");
});

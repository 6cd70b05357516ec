import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseBenchmark } from "../../components/benchmark";
import { json, processes, Sandbox, serve, until } from "./sandbox";

type Handler = Parameters<typeof serve>[0];

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

interface Completion {
  prompt: number[];
}

let box: Sandbox;
let port: string;
let close: () => void;
let handle: Handler;
/** What the server was sent by the driver itself: the requests of the warm-up. */
let warmups: { url: string; key: string | undefined; body: Completion }[];

beforeEach(async () => {
  box = new Sandbox();
  warmups = [];
  handle = (_, response) => {
    json(response, 200, { choices: [] });
  };
  ({ port, close } = await serve((request, response) => {
    warmups.push({ ...request, body: JSON.parse(request.body) as Completion });
    handle(request, response);
  }));
});
afterEach(() => {
  close();
  box.remove();
});

/** The serving image: the load tool writes `result`, or fails with `exitCode`. A `change` answers before all else. */
function image(result: unknown, exitCode = 0, change = ""): void {
  box.write("result.json", result);
  box.write(
    "docker-world/exec",
    `#!/bin/sh
case "$*" in
  ${change}
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

const driver = (...args: string[]) => box.exec(["python3", "-B", path.resolve("scripts/remote/benchmark.py"), ...args]);
const words = (...scenarios: unknown[]) => [...["server", port, "tiny", "/models/tiny"], JSON.stringify(scenarios)];
const run = () => driver(...words(scenario));

/** The load tool's arguments, run by run. */
const benches = () =>
  box
    .read("docker-world/calls.log")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as string[])
    .filter((call) => call.includes("bench"))
    .map((call) => call.slice(8));
const after = (flag: string, argv: string[]) => argv[argv.indexOf(flag) + 1];

test("figures have units in their names", async () => {
  image(raw);
  const before = Math.floor(Date.now() / 1000);
  const { code, stdout, stderr } = await run();
  expect(stderr).toBe(
    "concurrent: 4 requests, 2 at once\nconcurrent: 16.0 tokens/s, TTFT 117 ms, TPOT 113.0 ms (medians)\n",
  );
  expect(code).toBe(0);
  parseBenchmark(stdout);
  const { scenarios, ...method } = JSON.parse(stdout) as { scenarios: { seed: number }[] };
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
      seed: expect.any(Number) as number,
      warmupRequests: 2,
    },
  ]);
  const seed = scenarios[0]?.seed ?? 0;
  expect(Number.isInteger(seed) && seed >= before && seed <= Date.now() / 1000).toBe(true);
  expect(box.read("docker-world/calls.log")).not.toContain(key);
});

test("the load tool is asked for what the scenario says", async () => {
  image(raw);
  const { stdout } = await run();
  const { scenarios } = JSON.parse(stdout) as { scenarios: [{ seed: number }] };
  expect(benches()).toEqual([
    [
      ...[
        "vllm",
        "bench",
        "serve",
        "--backend",
        "vllm",
        "--base-url",
        `http://127.0.0.1:${port}`,
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
      ...["--max-concurrency", "2", "--num-warmups", "0", "--ready-check-timeout-sec", "0"],
      ...["--seed", String(scenarios[0].seed), "--disable-tqdm"],
      ...["--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99", "--save-result", "--save-detailed"],
      ...["--result-dir", "/tmp", "--result-filename", "dgx-spark-benchmark-concurrent.json"],
    ],
  ]);
});

test("the driver warms the server up by other prompts, as many at once and as long as the measured ones", async () => {
  image(raw);
  const proxied: string[] = [];
  const proxy = await serve(({ url }) => proxied.push(url));
  // Answered only when both are there.
  const waiting: (() => void)[] = [];
  handle = (_, response) => {
    waiting.push(() => {
      json(response, 200, { choices: [] });
    });
    if (waiting.length === 2)
      waiting.splice(0).forEach((answer) => {
        answer();
      });
  };
  const short = { ...scenario, name: "short", inputTokens: 5, outputTokens: 8 };
  const argv = ["python3", "-B", path.resolve("scripts/remote/benchmark.py"), ...words(scenario, short)];
  const { code, stdout } = await box.exec(argv, { http_proxy: `http://127.0.0.1:${proxy.port}` });
  proxy.close();
  expect([code, proxied]).toEqual([0, []]);
  expect(warmups.map(({ url, key, body: { prompt, ...body } }) => [url, key, prompt.length, body])).toEqual(
    [64, 64, 5, 5].map((length) => [
      "/v1/completions",
      `Bearer ${key}`,
      length,
      { model: "tiny", max_tokens: 8, ignore_eos: true, temperature: 0 },
    ]),
  );
  const prompts = warmups.map(({ body }) => body.prompt);
  expect(new Set(prompts.map((prompt) => JSON.stringify(prompt.slice(0, 5)))).size).toBe(4);
  expect(prompts.flat().every((id) => Number.isInteger(id) && id >= 0 && id < 256)).toBe(true);
  // Each scenario has its own seed, and it is the one that is recorded.
  const { scenarios } = JSON.parse(stdout) as { scenarios: { seed: number }[] };
  const [first = 0, second = 0] = scenarios.map(({ seed }) => seed);
  expect(second).toBe(first + 1);
  expect(benches().map((argv) => after("--seed", argv))).toEqual([String(first), String(second)]);
  expect(box.read("docker-world/calls.log")).not.toContain(key);
});

test("a warm-up that fails fails the run with the server's answer, and nothing is measured", async () => {
  image(raw);
  handle = (_, response) => {
    response.writeHead(400).end("the prompt is too long");
  };
  expect(await run()).toEqual({
    code: 1,
    stdout: "",
    stderr:
      "concurrent: 4 requests, 2 at once\n" +
      "concurrent: 2 of 2 requests of the warm-up failed. status 400: the prompt is too long\n",
  });
  expect(benches()).toEqual([]);
  close();
  expect((await run()).stderr).toMatch(/2 of 2 requests of the warm-up failed\. no answer: .*refused/);
});

test.each([
  ["*printenv*) exit 1 ;;", "printenv VLLM_API_KEY in container server failed: exit code 1"],
  [
    "*--version*) echo 'no such container' >&2; exit 1 ;;",
    "vllm --version in container server failed: no such container",
  ],
  [
    "*' cat '*) echo gone >&2; exit 1 ;;",
    "cat /tmp/dgx-spark-benchmark-concurrent.json in container server failed: gone",
  ],
  [
    "*' rm /'*) echo denied >&2; exit 1 ;;",
    "rm /tmp/dgx-spark-benchmark-concurrent.json in container server failed: denied",
  ],
  [
    "*' cat '*) echo '{' ;;",
    "concurrent: the load tool's result can't be used: JSONDecodeError: Expecting property name",
  ],
  ["*' cat '*) echo '{}' ;;", "concurrent: the load tool's result can't be used: KeyError: 'completed'"],
])("what fails in the container is named: %s", async (change, message) => {
  image(raw, 0, change);
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr.trimEnd().split("\n").at(-1)).toContain(message);
  expect(stderr).not.toContain("Traceback");
});

/** Starts a run whose load tool lasts; `bench` is how the container starts it. Calls in it are run on this machine. */
function lasting(bench: string) {
  image(raw, 0, `*"bench serve"*) ${bench} ;;\n  *kill*|*" rm -f "*) shift; exec "$@" ;;`);
  box.write("bin/vllm", `#!/bin/sh\necho $$ > '${box.home}/tool.pid'; exec sleep 50\n`, 0o755);
  const child = spawn("python3", ["-B", path.resolve("scripts/remote/benchmark.py"), ...words(scenario)], {
    cwd: box.home,
    env: box.environment(),
    stdio: "ignore",
  });
  const ended = new Promise<number | null>((resolve) => child.on("close", resolve));
  const pidFile = `/tmp/dgx-spark-benchmark-${String(child.pid)}.pid`;
  const tool = () => (fs.existsSync(path.join(box.home, "tool.pid")) ? box.read("tool.pid") : "");
  return { child, ended, pidFile, tool };
}

test("a cancelled run ends its own load, and leaves no pid file", async () => {
  const { child, ended, pidFile, tool } = lasting('shift 3; exec "$@"');
  await until(() => tool().endsWith("\n"));
  expect(fs.readFileSync(pidFile, "utf8")).toBe(tool());
  child.kill("SIGTERM");
  expect(await ended).toBe(143);
  expect(processes((id) => id === tool().trim())).toEqual([]);
  expect(fs.existsSync(pidFile)).toBe(false);
});

test("a run that is cancelled before its load began kills nothing", async () => {
  const { child, ended, pidFile, tool } = lasting('echo $$ > "$FAKE_DOCKER/../tool.pid"; exec sleep 50');
  await until(() => tool().endsWith("\n"));
  child.kill("SIGTERM");
  expect(await ended).toBe(143);
  const id = Number(tool());
  expect(processes((each) => each === String(id))).toEqual([String(id)]);
  process.kill(id);
  expect(fs.existsSync(pidFile)).toBe(false);
});

test("a run that ends leaves no pid file", async () => {
  image(raw, 0, `*"bench serve"*) shift 3; exec "$@" ;;\n  *" rm -f "*) shift; exec "$@" ;;`);
  box.write("bin/vllm", "#!/bin/sh\nls /tmp/dgx-spark-benchmark-*.pid > pid-files\n", 0o755);
  expect((await run()).code).toBe(0);
  const removed = box.read("docker-world/calls.log").match(/"rm", "-f", "([^"]+)"/)?.[1] ?? "";
  expect(box.read("pid-files").split("\n")).toContain(removed);
  expect(removed).toMatch(/^\/tmp\/dgx-spark-benchmark-\d+\.pid$/);
  expect(fs.existsSync(removed)).toBe(false);
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
});

test("a load tool that fails fails the run, with its last lines", async () => {
  image(raw, 1);
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain("a line of the tool\nconcurrent: the load tool failed, its last lines are above\n");
});

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseBenchmark } from "../../components/benchmark";
import { json, processes, Sandbox, serve, until } from "./sandbox";
import { driver, key, servingImage } from "./serving-image";

type Handler = Parameters<typeof serve>[0];

const scenario = { name: "load", requests: 4, concurrency: [2], inputTokens: 64, prefixTokens: 0, outputTokens: 3 };

/** What the load tool saves of so many requests: the first token, then one after 10 and one after 30 ms. */
const saved = (ttfts: number[], change: object = {}) => ({
  completed: ttfts.length,
  failed: 0,
  errors: ttfts.map(() => ""),
  duration: 2,
  total_input_tokens: 64 * ttfts.length,
  output_lens: ttfts.map(() => 3),
  ttfts,
  itls: ttfts.map(() => [0.01, 0.03]),
  ...change,
});
const raw = saved([0.1, 0.2, 0.3, 0.4]);

interface Completion {
  prompt: number[];
}

let box: Sandbox;
let port: string;
let close: () => void;
let handle: Handler;
/** What the server was sent by the driver itself: the requests of the warm-up. */
let warmups: { url: string; key: string | undefined; body: Completion }[];
/** Tokens that the server has generated, one look after the other, the last one again and again; undefined: it does not tell. */
let generated: number[] | undefined;
let requestsRunning: number;

beforeEach(async () => {
  box = new Sandbox();
  warmups = [];
  generated = undefined;
  requestsRunning = 0;
  handle = (_, response) => {
    json(response, 200, { choices: [] });
  };
  ({ port, close } = await serve((request, response) => {
    if (request.url === "/metrics") {
      const [count = 0] = generated ?? [];
      if (generated === undefined) response.writeHead(404).end();
      else response.end(metrics(count, requestsRunning));
      if (generated !== undefined && generated.length > 1) generated = generated.slice(1);
      return;
    }
    warmups.push({ ...request, body: JSON.parse(request.body) as Completion });
    handle(request, response);
  }));
});
afterEach(() => {
  close();
  box.remove();
});

/** Counters of a server that generated so many tokens, with so many requests under way. */
const metrics = (count: number, running: number) =>
  `# HELP x\nvllm:num_requests_running{engine="0"} ${running}.0\nvllm:num_requests_waiting{engine="0"} 0.0\n` +
  `vllm:generation_tokens_total{engine="0"} ${count}.0\n`;

const image = (results: unknown[], options?: { tool?: string; change?: string }) => {
  servingImage(box, results, options);
};
const words = (plan: object) => driver(port, { tool: "vllm-bench", ...plan });
const run = (...scenarios: unknown[]) =>
  box.exec(words({ repeats: 1, scenarios: scenarios.length === 0 ? [scenario] : scenarios }));

/** The load tool's command lines, run by run. */
const benches = () => {
  const text = fs.existsSync(path.join(box.home, "runs.log")) ? box.read("runs.log") : "";
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as string[]]));
};
const after = (flag: string, argv: string[]) => argv[argv.indexOf(flag) + 1];

test("figures are medians of the repeats with their range, and have units in their names", async () => {
  generated = [0, 0, 12, 12, 24, 24, 36];
  const slow = { ...raw, duration: 3, ttfts: [0.5, 0.5, 0.5, 0.5] };
  image([raw, slow, { ...raw, duration: 2.4 }]);
  const before = Math.floor(Date.now() / 1000);
  const { code, stdout, stderr } = await box.exec(words({ repeats: 3, scenarios: [scenario] }));
  expect(stderr).toBe("load at 2: 4 requests, 3 times\nload at 2: 5.0 tokens/s, TTFT 250 ms, TPOT 20.0 ms (medians)\n");
  expect(code).toBe(0);
  const result = parseBenchmark(stdout);
  const seeds = result.scenarios[0]?.levels[0]?.seeds ?? [];
  expect(seeds.length).toBe(3);
  expect(new Set(seeds).size).toBe(3);
  expect(seeds.every((seed) => seed >= before && seed <= Date.now() / 1000 + 4)).toBe(true);
  const once = (value: number) => ({ median: value, low: value, high: value });
  expect(result).toEqual({
    version: 1,
    method: {
      tool: "vllm bench serve 0.32.0",
      endpoint: `http://127.0.0.1:${port}/v1/completions, streamed`,
      driver: expect.stringMatching(/^the head, \S+$/) as string,
      dataset: "random tokens, a seed a run; end of text ignored",
      model: "tiny",
      repeats: 3,
      durationSeconds: expect.any(Number) as number,
      tokensCountedBy: "usage in the server's answers",
      image: "sha256:1",
      serverDigest: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      checks: expect.arrayContaining(["the server generated these tokens and no others"]) as string[],
      unchecked: expect.arrayContaining(["no thermal or power slowdown of the head's GPU"]) as string[],
    },
    startedAt: expect.stringMatching(/^20\d\d-.*\+00:00$/) as string,
    tool: "vllm-bench",
    scenarios: [
      {
        name: "load",
        inputTokens: 64,
        prefixTokens: 0,
        outputTokens: 3,
        levels: [
          {
            concurrency: 2,
            requests: 4,
            warmupRequests: 2,
            seeds,
            durationSeconds: { median: 2.4, low: 2, high: 3 },
            requestsPerSecond: { median: 1.66667, low: 1.33333, high: 2 },
            outputTokensPerSecond: { median: 5, low: 4, high: 6 },
            totalTokensPerSecond: { median: 111.667, low: 89.3333, high: 134 },
            promptTokensPerSecond: null,
            ppTokensPerSecond: null,
            tgTokensPerSecond: null,
            ttftMilliseconds: { median: 250, low: 250, high: 500, p90: 500, p99: 500 },
            tpotMilliseconds: { ...once(20), p90: 20, p99: 20 },
            itlMilliseconds: { ...once(20), p90: 30, p99: 30 },
          },
        ],
        peakConcurrency: 2,
        ended: "all levels measured",
      },
    ],
    earlier: [],
  });
  expect(box.read("docker-world/calls.log")).not.toContain(key);
});

test("alone, without a shared prefix, a prompt's speed is its tokens over the time to first token", async () => {
  image([raw]);
  const alone = { ...scenario, concurrency: [1] };
  const { stdout } = await run(alone, { ...alone, inputTokens: 32, prefixTokens: 32 });
  expect(parseBenchmark(stdout).scenarios.map(({ levels }) => levels[0]?.promptTokensPerSecond)).toEqual([
    { median: 256, low: 256, high: 256 },
    null,
  ]);
});

test("several tokens in one piece are not one: the time between tokens was not seen then, that per token was", async () => {
  image([{ ...raw, itls: Array.from({ length: 4 }, () => [0.04]) }]);
  const [level] = parseBenchmark((await run()).stdout).scenarios[0]?.levels ?? [];
  expect(level?.itlMilliseconds).toBeNull();
  // Half of the three tokens came in the first of two pieces.
  expect(level?.tpotMilliseconds.median).toBeCloseTo(40 / 1.5, 3);
});

test("a few tokens that come together don't hide the time between the others", async () => {
  const long = (pieces: number) =>
    saved([0.1, 0.1], {
      output_lens: [20, 20],
      itls: [Array<number>(pieces - 1).fill(0.01), Array<number>(19).fill(0.01)],
    });
  for (const [pieces, itl] of [
    [18, 10],
    [17, undefined],
  ] as const) {
    image([long(pieces)]);
    fs.rmSync(path.join(box.home, "runs.log"), { force: true });
    const { stdout } = await run({ ...scenario, requests: 2, concurrency: [1], outputTokens: 20 });
    expect(parseBenchmark(stdout).scenarios[0]?.levels[0]?.itlMilliseconds?.median).toBe(itl);
  }
});

test("earlier runs are told, oldest first, and a line that is none is left out; the file is kept short", async () => {
  image([raw]);
  const old = Array.from({ length: 25 }, (_, index) => JSON.stringify({ startedAt: index, scenarios: [] }));
  box.write("runs.jsonl", [...old, "{half"].map((line) => `${line}\n`).join(""));
  const { earlier } = JSON.parse((await run()).stdout) as { earlier: { startedAt: unknown }[] };
  expect(earlier.map(({ startedAt }) => startedAt)).toEqual([15, 16, 17, 18, 19, 20, 21, 22, 23, 24]);
  const kept = box.read("runs.jsonl").trimEnd().split("\n");
  expect(kept).toHaveLength(20);
  const last = JSON.parse(kept.at(-1) ?? "") as { scenarios: { name: string }[] };
  expect(last.scenarios.map(({ name }) => name)).toEqual(["load"]);
});

const eight = (tokensPerSecond: number, last = 0.1) =>
  saved([...Array<number>(7).fill(0.1), last], { duration: 24 / tokensPerSecond });

test.each<[string, object, unknown[], number, number[], string]>([
  ["as long as it grows", {}, [eight(10), eight(20), eight(30)], 4, [1, 2, 4], "all levels measured"],
  ["until it grows too little", {}, [eight(10), eight(10.4), eight(30)], 2, [1, 2], "throughput stopped growing"],
  ["and no further when it falls", {}, [eight(10), eight(9), eight(30)], 1, [1, 2], "throughput stopped growing"],
  [
    "until the first token comes too late",
    { ttftLimitMilliseconds: 450 },
    [eight(10), eight(20, 0.5), eight(30)],
    1,
    [1, 2],
    "TTFT over its bound",
  ],
])("levels are measured %s", async (_, more, results, peak, measured, ended) => {
  image(results);
  const { code, stdout, stderr } = await run({ ...scenario, requests: 8, concurrency: [1, 2, 4], ...more });
  expect([code, stderr.includes("Traceback")]).toEqual([0, false]);
  const [found] = parseBenchmark(stdout).scenarios;
  expect(found?.levels.map(({ concurrency }) => concurrency)).toEqual(measured);
  expect([found?.peakConcurrency, found?.ended]).toEqual([peak, ended]);
  expect(benches().map((argv) => after("--max-concurrency", argv))).toEqual(measured.map(String));
});

test.each([
  ["twice as many as are under way at once", 4, 6],
  ["a multiple of those under way at once", 7, 9],
])("there are at least so many requests as the scenario says: %s", async (_, requests, sent) => {
  image([saved(Array<number>(sent).fill(0.1))]);
  const { stdout } = await run({ ...scenario, requests, concurrency: [3] });
  expect(parseBenchmark(stdout).scenarios[0]?.levels[0]?.requests).toBe(sent);
  expect(benches().map((argv) => after("--num-prompts", argv))).toEqual([String(sent)]);
});

test("the load tool is asked for what the scenario says", async () => {
  image([raw]);
  const { stdout } = await run({ ...scenario, inputTokens: 60, prefixTokens: 4 });
  const [seed] = parseBenchmark(stdout).scenarios[0]?.levels[0]?.seeds ?? [];
  const [[folder = "/", ...bench] = []] = benches();
  expect(bench).toEqual([
    ...["vllm", "bench", "serve", "--backend", "vllm", "--base-url", `http://127.0.0.1:${port}`],
    ...["--model", "tiny", "--tokenizer", "/models/tiny", "--dataset-name", "random", "--ignore-eos"],
    ...["--random-input-len", "60", "--random-output-len", "3", "--random-prefix-len", "4", "--num-prompts", "4"],
    ...["--max-concurrency", "2", "--num-warmups", "0", "--ready-check-timeout-sec", "0", "--seed", String(seed)],
    ...["--disable-tqdm", "--save-result", "--save-detailed", "--result-dir", ".", "--result-filename", "result.json"],
  ]);
  // It is gone with the run.
  expect(fs.existsSync(folder)).toBe(false);
});

test("the driver warms the server up by other prompts, as many at once and as long as the measured ones", async () => {
  image([raw]);
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
  const prefixed = { ...scenario, name: "prefixed", inputTokens: 14, prefixTokens: 50 };
  const argv = words({ repeats: 1, scenarios: [scenario, prefixed] });
  const { code, stdout } = await box.exec(argv, { http_proxy: `http://127.0.0.1:${proxy.port}` });
  proxy.close();
  expect([code, proxied]).toEqual([0, []]);
  expect(warmups.map(({ url, key, body: { prompt, ...body } }) => [url, key, prompt.length, body])).toEqual(
    [64, 64, 64, 64].map((length) => [
      "/v1/completions",
      `Bearer ${key}`,
      length,
      { model: "tiny", max_tokens: 3, ignore_eos: true, temperature: 0 },
    ]),
  );
  const prompts = warmups.map(({ body }) => body.prompt);
  expect(new Set(prompts.map((prompt) => JSON.stringify(prompt.slice(0, 5)))).size).toBe(4);
  expect(prompts.flat().every((id) => Number.isInteger(id) && id >= 0 && id < 256)).toBe(true);
  // Each run has its own seed, and it is the one that is recorded.
  const seeds = parseBenchmark(stdout).scenarios.flatMap(({ levels }) => levels.flatMap((level) => level.seeds));
  expect(new Set(seeds).size).toBe(2);
  expect(benches().map((bench) => after("--seed", bench))).toEqual(seeds.map(String));
  expect(box.read("docker-world/calls.log")).not.toContain(key);
});

test("a warm-up that fails fails the run with the server's answer, and nothing is measured", async () => {
  image([raw]);
  handle = (_, response) => {
    response.writeHead(400).end("the prompt is too long");
  };
  expect(await run()).toEqual({
    code: 1,
    stdout: "",
    stderr:
      "load at 2: 4 requests, 1 times\n" +
      "load at 2: 2 of 2 requests of the warm-up failed. status 400: the prompt is too long\n",
  });
  expect(benches()).toEqual([]);
  close();
  expect((await run()).stderr).toMatch(/2 of 2 requests of the warm-up failed\. no answer: .*refused/);
});

/** Runs it, and tells what it said last; it prints no figures and keeps none. */
async function refused(): Promise<string> {
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([1, ""]);
  expect(fs.existsSync(path.join(box.home, "runs.jsonl"))).toBe(false);
  return stderr.trimEnd().split("\n").at(-1) ?? "";
}

test.each([
  ["*printenv*) exit 1 ;;", "printenv VLLM_API_KEY in container server failed: exit code 1"],
  [
    "*metadata.version*) echo 'no such container' >&2; exit 1 ;;",
    "python3 -c import importlib.metadata, sys; sys.path.append('/tmp/dgx-spark-serving-packages'); print(importlib.metadata.version(sys.argv[1])) vllm in container server failed: no such container",
  ],
  ["*--interactive*) exit 1 ;;", "load at 2: the load tool failed, its last lines are above"],
])("what fails in the container is named: %s", async (change, message) => {
  image([raw], { change });
  expect(await refused()).toBe(message);
});

test.each<[string, string]>([
  ["raise RuntimeError('the tool is broken')", "RuntimeError: the tool is broken"],
  ["sys.exit('no such option')", "a line of the tool"],
  ["return", "the load tool saved no result: [Errno 2]"],
  ["os._exit(3)", "a line of the tool"],
])("a load tool that fails fails the run, with its last lines: %s", async (tool, said) => {
  image([raw], { tool });
  const { stderr } = await run();
  expect(stderr).toContain(said);
  expect(await refused()).toBe("load at 2: the load tool failed, its last lines are above");
});

test("a result without what is needed fails the run", async () => {
  image([{}]);
  expect(await refused()).toBe("load at 2: the load tool's result can't be used: KeyError: 'completed'");
});

test.each<[string, object, RegExp]>([
  [
    "failed requests",
    { completed: 3, failed: 1, errors: ["", "Traceback\nConnectionError: refused", "", ""] },
    /3 of 4 requests completed, 1 failed\. ConnectionError: refused/,
  ],
  ["requests that are not counted at all", { completed: 3, failed: undefined }, /3 of 4 requests completed, 1 failed/],
  ["every request failed", { completed: 0, failed: 4 }, /0 of 4 requests completed, 4 failed/],
  ["empty answers", { output_lens: [0, 0, 0, 0] }, /4 of 4 answers have 0 tokens, 3 were asked for/],
  ["answers cut short", { output_lens: [3, 2, 3, 1] }, /2 of 4 answers have 1, 2 tokens, 3 were asked for/],
  ["one too long, one too short", { output_lens: [3, 2, 4, 3] }, /2 of 4 answers have 2, 4 tokens, 3 were asked for/],
  [
    "more pieces than tokens",
    { itls: Array.from({ length: 4 }, () => [0.1, 0.1, 0.1]) },
    /came in 4 pieces and has 3 tokens: the counts of server and client are apart/,
  ],
  [
    "an answer in one piece",
    { itls: [[0.1], [0.1], [], [0.1]] },
    /an answer came in one piece: the server does not stream/,
  ],
  [
    "answers that were held up",
    { itls: Array.from({ length: 4 }, () => [0.0002, 0.0003]) },
    /all pieces of each answer came at once: the stream is held up on its way/,
  ],
  ["no first token", { ttfts: [0.1, 0, 0.1, 0.1] }, /an answer has no first token/],
  ["prompts of another length", { total_input_tokens: 320 }, /80 tokens by the server's count, 64 were asked for/],
])("%s fail the run, and nothing is kept", async (_, change, message) => {
  image([{ ...raw, ...change }]);
  expect(await refused()).toMatch(message);
});

test.each<[string, string, string]>([
  [
    "the container is another life's",
    "world = json.load(open(os.environ['FAKE_DOCKER'] + '/containers.json')); world['server']['restarts'] = 1; json.dump(world, open(os.environ['FAKE_DOCKER'] + '/containers.json', 'w'))",
    "load at 2: the server was restarted in between: container server is running",
  ],
  [
    "the container ended",
    "json.dump({'server': {'status': 'exited', 'exitCode': 1}}, open(os.environ['FAKE_DOCKER'] + '/containers.json', 'w'))",
    "load at 2: the server was restarted in between: container server is exited",
  ],
])("a server that is restarted in between makes figures worthless: %s", async (_, tool, message) => {
  image([raw], { tool });
  expect(await refused()).toBe(message);
});

test.each<[string, number[], number, string]>([
  [
    "another client uses the server meanwhile",
    [100, 100, 113],
    0,
    "load at 2: the server generated 13 tokens meanwhile, 12 were asked for here: somebody else uses it",
  ],
  [
    "the server counts fewer than it tells",
    [100, 100, 105],
    0,
    "load at 2: the server generated 5 tokens meanwhile, 12 were asked for here: it counts otherwise than it tells its clients",
  ],
  ["the engine began anew", [100, 100, 12], 0, "load at 2: the server began anew in between"],
  [
    "another client is there before",
    [100],
    3,
    "load at 2: 3 requests of somebody else are under way: a measurement beside them says nothing",
  ],
])("the server's counters tell: %s", async (_, counts, running, message) => {
  generated = counts;
  requestsRunning = running;
  image([raw]);
  expect(await refused()).toBe(message);
});

test("counters may come late, and where there are none it is said", async () => {
  image([raw]);
  generated = [100, 100, 100, 106, 112];
  expect(parseBenchmark((await run()).stdout).method.unchecked).not.toContain(
    "the server generated these tokens and no others",
  );
  generated = undefined;
  expect(parseBenchmark((await run()).stdout).method.unchecked).toContain(
    "the server generated these tokens and no others",
  );
});

test.each<[string, string[], string | undefined]>([
  ["Not Active, Not Active, Not Active", ["yes"], undefined],
  ["Not Active, Active, Not Active", ["yes"], "load at 2: the GPU is slowed down: sw_thermal_slowdown"],
  ["[N/A], [N/A], Active", ["yes"], "load at 2: the GPU is slowed down: hw_power_brake_slowdown"],
  ["[N/A], [N/A], [N/A]", [], undefined],
])("the GPU's clocks are looked at where it tells: %s", async (answer, known, message) => {
  image([raw]);
  box.write("bin/nvidia-smi", `#!/bin/sh\necho '${answer}'\n`, 0o755);
  if (message !== undefined) expect(await refused()).toBe(message);
  else {
    const { checks } = parseBenchmark((await run()).stdout).method;
    expect(checks.filter((each) => each.includes("GPU"))).toHaveLength(known.length);
  }
});

test.each(["SIGTERM", "SIGKILL"] as const)("a run that is ended by %s leaves no load", async (signal) => {
  image([raw], {
    tool: `open("${box.home}/tool.pid", "w").write(str(os.getpid()) + "\\n"); import time; time.sleep(50)`,
  });
  const [program = "", ...args] = words({ repeats: 1, scenarios: [scenario] });
  const child = spawn(program, args, { cwd: box.home, env: box.environment(), stdio: "ignore" });
  const tool = () => (fs.existsSync(path.join(box.home, "tool.pid")) ? box.read("tool.pid") : "");
  await until(() => tool().endsWith("\n"));
  const load = () => processes((id) => id === tool().trim());
  expect(load()).toEqual([tool().trim()]);
  child.kill(signal);
  await until(() => load().length === 0);
  expect(load()).toEqual([]);
});

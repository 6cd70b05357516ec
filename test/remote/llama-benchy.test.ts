import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseBenchmark } from "../../components/benchmark";
import { json, Sandbox, serve } from "./sandbox";
import { driver, key, servingImage } from "./serving-image";

// llama-benchy is not here: what it tells of a server is made up, in the form of its events. The lab has the real one.

const scenario = { name: "chat", requests: 4, concurrency: [2], inputTokens: 64, prefixTokens: 0, outputTokens: 4 };

/** A request as llama-benchy sees it: when it was sent, when its pieces came, seconds, and what the server told at the end. */
interface Request {
  sent: number;
  pieces: [at: number, text: string][];
  tokens?: number;
  promptTokens?: number;
  error?: string;
  /** Its batch. */
  run?: number;
}

/** llama-benchy's file of events. */
function events(requests: Request[]): string {
  const lines: object[] = [{ type: "header", llama_benchy_version: "0.4.0" }];
  requests.forEach(({ sent, pieces, tokens = 4, promptTokens = 64, error = "", run = 0 }, request_id) => {
    const event = (type: string, ts: number, more: object) => lines.push({ type, ts: 1000 + ts, request_id, ...more });
    // It is told a little before it is sent.
    event("request_start", sent - 0.05, { run_index: run });
    event("request_first_response", sent, { ttfr_s: 0 });
    const [first] = pieces;
    if (first) event("request_first_token", first[0], { ttft_s: first[0] - sent });
    for (const [at, snippet] of pieces) event("tokens", at, { count: 1, snippet, estimated: true });
    const end = pieces.at(-1)?.[0] ?? sent;
    event("request_end", end + 0.05, { total_tokens: tokens, prompt_tokens: promptTokens, error });
  });
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

/** Pieces of text that come at these times. */
const at = (...times: number[]): Request["pieces"] => times.map((time) => [time, "word "]);

/** Two requests at once, and then two more. */
const good: Request[] = [
  { sent: 0, pieces: at(0.2, 0.3, 0.4, 0.5) },
  { sent: 0, pieces: at(0.4, 0.5, 0.6, 0.8) },
  { sent: 1, run: 1, pieces: at(1.2, 1.3, 1.4, 1.5) },
  { sent: 1, run: 1, pieces: at(1.2, 1.3, 1.4, 1.5) },
];

let box: Sandbox;
let port: string;
let close: () => void;
/** Tokens that the server has generated, one look after the other. */
let generated: number[];

beforeEach(async () => {
  box = new Sandbox();
  generated = [];
  ({ port, close } = await serve(({ url }, response) => {
    if (url !== "/metrics") json(response, 200, { choices: [] });
    else if (generated.length === 0) response.writeHead(404).end();
    else
      response.end(
        `vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:generation_tokens_total ${generated.shift() ?? 0}\n`,
      );
  }));
});
afterEach(() => {
  close();
  box.remove();
});

const run = (more: object = {}, repeats = 1) =>
  box.exec(driver(port, { tool: "llama-benchy", repeats, scenarios: [{ ...scenario, ...more }] }));
const logged = (name: string) =>
  box
    .read(name)
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as string[]);

test("its events make the same figures as another tool's result, and the two that it is known for", async () => {
  servingImage(box, [events(good)]);
  const { stdout, stderr } = await run();
  expect(stderr).toBe(
    "chat at 2: 4 requests, 1 times\nchat at 2: 12.3 tokens/s, TTFT 200 ms, TPOT 100.0 ms (medians)\n",
  );
  const { tool, method, scenarios } = parseBenchmark(stdout);
  expect([tool, method.tool, method.endpoint]).toEqual([
    "llama-benchy",
    "llama-benchy 0.32.0",
    `http://127.0.0.1:${port}/v1/chat/completions, streamed`,
  ]);
  expect(method.dataset).toMatch(/^passages of Python's manual/);
  const once = (value: number) => ({ median: value, low: value, high: value });
  expect(scenarios[0]?.levels[0]).toMatchObject({
    // Both batches, each from its first request to its last token.
    durationSeconds: once(1.3),
    requestsPerSecond: once(3.07692),
    outputTokensPerSecond: once(12.3077),
    totalTokensPerSecond: once(209.231),
    promptTokensPerSecond: null,
    // 128 tokens in 400 and in 200 ms; 6 tokens in 600 and in 300 ms.
    ppTokensPerSecond: once(480),
    tgTokensPerSecond: once(15),
    ttftMilliseconds: { ...once(200), p90: 340 },
    tpotMilliseconds: { ...once(100), p90: 123.333 },
    itlMilliseconds: { ...once(100), p90: 100 },
  });
});

test("several tokens in a piece are not one, though it takes the first piece for one", async () => {
  const pieces = (sent: number) => at(sent + 0.2, sent + 0.4);
  servingImage(box, [events(good.map((request) => ({ ...request, pieces: pieces(request.sent) })))]);
  const [level] = parseBenchmark((await run()).stdout).scenarios[0]?.levels ?? [];
  // Two of the four tokens in 200 ms; of two requests.
  expect([level?.tpotMilliseconds.median, level?.tgTokensPerSecond?.median, level?.itlMilliseconds]).toEqual([
    expect.closeTo(100, 2),
    expect.closeTo(20, 2),
    null,
  ]);
});

test("it is asked for what the scenario says, and finds its book; the key is in no command line", async () => {
  const book = "glob.glob(os.path.expanduser('~/.cache/llama-benchy/*.txt'))[0]";
  servingImage(box, [events(good)], {
    tool: `import glob, shutil; shutil.copy(${book}, "${box.home}/book-" + str(times))`,
  });
  expect((await run({}, 2)).code).toBe(0);
  const [[folder = "/", ...argv] = []] = logged("runs.log");
  expect(argv).toEqual([
    ...["llama-benchy", "--base-url", `http://127.0.0.1:${port}/v1`, "--api-key", key, "--model", "tiny"],
    ...["--tokenizer", "/models/tiny", "--book-url", "python-manual", "--pp", "64", "--tg", "4", "--exact-tg"],
    ...["--concurrency", "2", "--runs", "2", "--no-warmup", "--skip-coherence", "--latency-mode", "none"],
    ...["--extra-body", "return_token_ids=false", "--emit-progress", "result.json"],
  ]);
  expect(fs.existsSync(folder)).toBe(false);
  expect(box.read("docker-world/calls.log")).not.toContain(key);
  // The same words, in another order each time.
  const books = [1, 2].map((number) => box.read(`book-${number}`));
  expect(books[0]).toContain("statement");
  expect(books[0]).not.toBe(books[1]);
  expect(books[0]?.length).toBe(books[1]?.length);
});

/** Runs it on these requests, and tells what it said last; it prints no figures. */
async function refused(requests: Request[]): Promise<string> {
  servingImage(box, [events(requests)]);
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([1, ""]);
  return stderr.trimEnd().split("\n").at(-1) ?? "";
}

test.each<[string, Partial<Request>, string]>([
  ["refused", { error: "HTTP 503: <p>\n busy</p>", pieces: [] }, "HTTP 503: <p> busy</p>"],
  ["empty", { pieces: [] }, "the answer is empty"],
  [
    "without usage, or broken off",
    { promptTokens: 0 },
    "the answer has no count of its tokens at its end (usage): it broke off, or the server tells none",
  ],
  [
    "with its thinking held back",
    { tokens: 12, pieces: [[0.2, "a long, long thought "], ...at(0.3, 0.4)] },
    "68% of the answer came in the first of 3 pieces: the server held tokens back",
  ],
])("a request that is no measurement fails the run: %s", async (_, change, message) => {
  const [first, ...others] = good;
  if (first === undefined) throw new Error("no request");
  expect(await refused([{ ...first, ...change }, ...others])).toBe(
    `chat at 2: 3 of 4 requests completed, 1 failed. ${message}`,
  );
});

test("what holds for another tool's result holds for its too", async () => {
  const all = (change: Partial<Request>) => good.map((request) => ({ ...request, ...change }));
  expect(await refused(good.slice(1))).toMatch(/3 of 4 requests completed, 1 failed/);
  expect(await refused(all({ tokens: 5 }))).toMatch(/4 of 4 answers have 5 tokens, 4 were asked for/);
  expect(await refused(all({ promptTokens: 80 }))).toMatch(/prompts have 80 tokens by the server's count, 64/);
  expect(await refused(all({ pieces: at(1.2, 1.3, 1.4, 1.5, 1.6) }))).toMatch(/came in 5 pieces and has 4 tokens/);
  expect(await refused(all({ pieces: at(1.2) }))).toMatch(/an answer came in one piece/);
  expect(await refused(all({ pieces: at(1.2, 1.2) }))).toMatch(/all pieces of each answer came at once/);
});

test("the two tokens of its own requests are no other client's", async () => {
  servingImage(box, [events(good)]);
  generated = [100, 100, 118];
  expect((await run()).code).toBe(0);
  generated = [100, 100, 119];
  expect((await run()).stderr).toMatch(/generated 19 tokens meanwhile, 18 were asked for here: somebody else uses it/);
});

test("an image without it gets it, pinned and alone; without an index it is said what to do", async () => {
  const mark = path.join(box.home, "installed");
  const change = (pip: string) =>
    `*importlib.metadata.version*) test -e '${mark}' && echo 0.4.0; exit ;; *"pip install"*) ${pip} ;;`;
  servingImage(box, [events(good)], { change: change(`touch '${mark}'`) });
  const { stdout, stderr } = await run();
  expect(stderr).toContain("llama-benchy is not in the image: installing it in container server\n");
  expect(parseBenchmark(stdout).method.tool).toBe("llama-benchy 0.4.0");
  const installs = () => logged("docker-world/calls.log").filter((call) => call.includes("pip"));
  const place = "/tmp/dgx-spark-serving-packages";
  expect(installs()).toEqual([
    [
      ...["exec", "server", "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
      ...["--retries", "1", "--no-deps", "--upgrade", "--target", place, "llama-benchy==0.4.0", "tabulate==0.10.0"],
    ],
  ]);
  // There now.
  await run();
  expect(installs()).toHaveLength(1);

  fs.rmSync(mark);
  servingImage(box, [events(good)], { change: change("echo 'no route to host' >&2; exit 1") });
  const failed = await run();
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain(
    "no route to host\nllama-benchy is not in the image, and could not be installed in container server: pip's words are above.\n" +
      "  mend: let the head reach Python's package index\n",
  );
});

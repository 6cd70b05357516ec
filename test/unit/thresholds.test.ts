import { expect, test } from "vitest";
import { type BenchmarkFigures, parseBenchmark } from "../../components/benchmark";
import {
  breachesOf,
  changesSince,
  goodRuns,
  renderBreaches,
  renderTooFew,
  summaryOf,
} from "../../components/thresholds";
import { figures } from "./stack";

/** A run whose one level has this throughput, low and high around it. */
function run(speed: number, { noise = 0.5, startedAt = "2026-12-01T00:00:00+00:00", inputTokens = 1024 } = {}) {
  const parsed = parseBenchmark(JSON.stringify(figures));
  const [scenario] = parsed.scenarios;
  const [level] = scenario?.levels ?? [];
  if (scenario === undefined || level === undefined) throw new Error("no level");
  const outputTokensPerSecond = { median: speed, low: speed - noise, high: speed + noise };
  const levels = [{ ...level, outputTokensPerSecond }];
  return {
    startedAt,
    tool: "vllm-bench",
    scenarios: [{ ...scenario, inputTokens, levels }],
  } satisfies BenchmarkFigures;
}
const bound = { scenario: "single-stream", metric: "outputTokensPerSecond" } as const;

test("an absolute bound is kept at the bound, and not beyond it", () => {
  const breaches = (speed: number) =>
    breachesOf(run(speed), [], [{ ...bound, atLeast: 20, atMost: 30 }]).map(({ expected, measured }) => [
      expected,
      measured,
    ]);
  expect([20, 30].flatMap(breaches)).toEqual([]);
  expect(breaches(19.99)).toEqual([["at least 20 per second", "19.99 per second at concurrency 1"]]);
  expect(breaches(30.01)).toEqual([["at most 30 per second", "30.01 per second at concurrency 1"]]);
});

test("a relative bound holds the best repeat against the worst of the good runs", () => {
  const worse = [{ ...bound, maxWorsePercent: 10 }];
  expect(breachesOf(run(80), [run(102), run(101), run(100)], worse)).toMatchObject([
    {
      expected: "the best repeat at most 10 % worse than 99.5 per second, the worst of the last 3 good runs",
      measured: "80.5 per second at concurrency 1, 19.1 % worse",
    },
  ]);
  const three = (speed: number, options = {}) => Array.from({ length: 3 }, () => run(speed, options));
  expect(breachesOf(run(90), three(100), worse)).toEqual([]);
  expect(breachesOf(run(120), three(100), worse)).toEqual([]);
  // One of the runs was as slow: that is noise.
  expect(breachesOf(run(80), [run(100), run(85), run(100)], worse)).toEqual([]);
  expect(breachesOf(run(80, { noise: 10 }), three(100), worse)).toEqual([]);
  // Too little to compare with: few runs, or such of other lengths or by another tool.
  expect(breachesOf(run(80), [run(100), run(100)], worse)).toEqual([]);
  expect(breachesOf(run(80), three(100, { inputTokens: 64 }), worse)).toEqual([]);
  const other = three(100).map((each) => ({ ...each, tool: "llama-benchy" as const }));
  expect(breachesOf(run(80), other, worse)).toEqual([]);
});

test("a relative bound that is not held yet is told, with the number of runs that there are", () => {
  const both = [
    { ...bound, maxWorsePercent: 10 },
    { scenario: "other", metric: "tpotMilliseconds", maxWorsePercent: 10 },
  ] as const;
  const three = [run(100), run(100), run(100)];
  const told = (names: string) =>
    `maxWorsePercent is held against 3 good runs or more, and not yet for ${names}.\n  measure again: pulumi up --replace '**benchmark-run'`;
  // Each scenario once.
  expect(renderTooFew(run(80), three.slice(0, 2), [...both, ...both])).toBe(
    told("single-stream (2 so far), other (0 so far)"),
  );
  expect(renderTooFew(run(80), three, both)).toBe(told("other (0 so far)"));
  expect(renderTooFew(run(80), three, both.slice(0, 1))).toBeUndefined();
  expect(renderTooFew(run(80), [], [{ ...bound, atLeast: 20 }])).toBeUndefined();
});

test("of a time more is worse", () => {
  const first = (median: number) => {
    const whole = run(100);
    const levels = whole.scenarios[0]?.levels ?? [];
    const ttftMilliseconds = { median, low: median - 1, high: median + 1, p90: median, p99: median };
    return {
      ...whole,
      scenarios: whole.scenarios.map((each) => ({
        ...each,
        levels: levels.map((level) => ({ ...level, ttftMilliseconds })),
      })),
    };
  };
  const time = [{ scenario: "single-stream", metric: "ttftMilliseconds", maxWorsePercent: 10 }] as const;
  expect(breachesOf(first(25), [first(20), first(20), first(20)], time).map(({ measured }) => measured)).toEqual([
    "24 ms at concurrency 1, 14.29 % worse",
  ]);
  expect(breachesOf(first(15), [first(20), first(20), first(20)], time)).toEqual([]);
});

test("a figure that is not there is not kept", () => {
  const itl = breachesOf(run(10), [], [{ scenario: "single-stream", metric: "itlMilliseconds", atMost: 1 }]);
  expect(itl.map(({ measured }) => measured)).toEqual(["none: see the benchmark's method"]);
  const level = breachesOf(run(10), [], [{ ...bound, concurrency: 4, atMost: 1 }]);
  expect(level.map(({ measured }) => measured)).toEqual(["no such level"]);
});

test("the good runs are the last five that kept the thresholds, against those before them", () => {
  const runs = [100, 98, 99, 60, 62, 97, 96, 95].map((speed, day) => run(speed, { startedAt: String(day) }));
  const days = (of: readonly BenchmarkFigures[]) => of.map(({ startedAt }) => startedAt).join("");
  const worse = [{ ...bound, maxWorsePercent: 10 }];
  expect(days(goodRuns(runs, worse))).toBe("12567");
  // Two bad runs in a row are no new standard.
  expect(days(goodRuns(runs.slice(0, 5), worse))).toBe("012");
  expect(days(goodRuns(runs, []))).toBe("34567");
  expect(goodRuns([], worse)).toEqual([]);
});

test("changes are told in percent of the last good run, and whether they are beyond the range of all", () => {
  const told = (good: BenchmarkFigures[]) =>
    changesSince(run(80), good).map(({ metric, changePercent, beyondNoise }) => [metric, changePercent, beyondNoise]);
  const times = [
    ["ttftMilliseconds", 0, false],
    ["tpotMilliseconds", 0, false],
  ];
  expect(told([run(100)])).toEqual([["outputTokensPerSecond", -20, true], ...times]);
  expect(told([run(80.2), run(100)])).toEqual([["outputTokensPerSecond", -20, false], ...times]);
  expect(told([])).toEqual([]);
});

test("people are told what was expected and measured, and how to go on", () => {
  expect(summaryOf(run(80))).toBe("single-stream 80 tokens/s at 1, TTFT 15.9 ms, TPOT 15.9 ms");
  const chat = run(80);
  for (const level of chat.scenarios.flatMap(({ levels }) => levels)) {
    level.ppTokensPerSecond = { median: 1812.34, low: 1800, high: 1900 };
    level.tgTokensPerSecond = { median: 24.1, low: 24, high: 25 };
  }
  expect(summaryOf(chat)).toBe("single-stream pp1024 (c1) 1812, tg128 (c1) 24.1 tokens/s");
  expect(renderBreaches(breachesOf(run(10), [], [{ ...bound, atLeast: 20 }]))).toBe(
    "1 threshold of the benchmark not kept. The server is up and serves.\n\n" +
      "  single-stream: outputTokensPerSecond\n    expected  at least 20 per second\n    measured  10 per second at concurrency 1\n\n" +
      "  mend: find what made it slower; or measure again: pulumi up --replace '**benchmark-run'\n" +
      "        or let it pass: pulumi config set --path benchmark.onBreach warn",
  );
});

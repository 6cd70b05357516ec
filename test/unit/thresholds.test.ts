import { expect, test } from "vitest";
import { type BenchmarkFigures, parseBenchmark } from "../../components/benchmark";
import { breachesOf, changesBetween, lastGood, renderBreaches, summaryOf } from "../../components/thresholds";
import { figures } from "./stack";

/** A run whose one level has this throughput, low and high around it. */
function run(speed: number, { noise = 0.5, startedAt = "2026-12-01T00:00:00+00:00", inputTokens = 1024 } = {}) {
  const parsed = parseBenchmark(JSON.stringify(figures));
  const [scenario] = parsed.scenarios;
  const [level] = scenario?.levels ?? [];
  if (scenario === undefined || level === undefined) throw new Error("no level");
  const outputTokensPerSecond = { median: speed, low: speed - noise, high: speed + noise };
  const levels = [{ ...level, outputTokensPerSecond }];
  return { startedAt, scenarios: [{ ...scenario, inputTokens, levels }] } satisfies BenchmarkFigures;
}
const bound = { scenario: "single-stream", metric: "outputTokensPerSecond" } as const;

test("an absolute bound is kept at the bound, and not beyond it", () => {
  const breaches = (speed: number) =>
    breachesOf(run(speed), undefined, [{ ...bound, atLeast: 20, atMost: 30 }]).map(({ expected, measured }) => [
      expected,
      measured,
    ]);
  expect([20, 30].flatMap(breaches)).toEqual([]);
  expect(breaches(19.99)).toEqual([["at least 20 per second", "19.99 per second at concurrency 1"]]);
  expect(breaches(30.01)).toEqual([["at most 30 per second", "30.01 per second at concurrency 1"]]);
});

test("a relative bound counts what is worse, and only beyond the noise of both runs", () => {
  const worse = [{ ...bound, maxWorsePercent: 10 }];
  expect(breachesOf(run(80), run(100), worse)).toMatchObject([
    {
      expected: "at most 10 % worse than 100 per second of the last good run, 2026-12-01T00:00:00+00:00",
      measured: "80 per second at concurrency 1: -20 %",
    },
  ]);
  expect(breachesOf(run(90), run(100), worse)).toEqual([]);
  expect(breachesOf(run(120), run(100), worse)).toEqual([]);
  // The ranges touch.
  expect(breachesOf(run(80, { noise: 10 }), run(100, { noise: 10 }), worse)).toEqual([]);
  // Nothing to compare with: no run, or one of other lengths.
  expect(breachesOf(run(80), undefined, worse)).toEqual([]);
  expect(breachesOf(run(80), run(100, { inputTokens: 64 }), worse)).toEqual([]);
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
  expect(breachesOf(first(25), first(20), time).map(({ measured }) => measured)).toEqual([
    "25 ms at concurrency 1: +25 %",
  ]);
  expect(breachesOf(first(15), first(20), time)).toEqual([]);
});

test("a figure that is not there is not kept", () => {
  const itl = breachesOf(run(10), undefined, [{ scenario: "single-stream", metric: "itlMilliseconds", atMost: 1 }]);
  expect(itl.map(({ measured }) => measured)).toEqual(["none: see the benchmark's method"]);
  const level = breachesOf(run(10), undefined, [{ ...bound, concurrency: 4, atMost: 1 }]);
  expect(level.map(({ measured }) => measured)).toEqual(["no such level"]);
});

test("the last good run is the latest that kept the thresholds, against the good ones before it", () => {
  const runs = [100, 98, 60, 62, 97].map((speed, day) => run(speed, { startedAt: `day ${day}` }));
  const worse = [{ ...bound, maxWorsePercent: 10 }];
  expect(lastGood(runs, worse)?.startedAt).toBe("day 4");
  // Two bad runs in a row are no new standard.
  expect(lastGood(runs.slice(0, 4), worse)?.startedAt).toBe("day 1");
  expect(lastGood(runs, [])?.startedAt).toBe("day 4");
  expect(lastGood([], worse)).toBeUndefined();
});

test("changes are told in percent of the value before", () => {
  expect(
    changesBetween(run(80), run(100)).map(({ metric, changePercent, beyondNoise }) => [
      metric,
      changePercent,
      beyondNoise,
    ]),
  ).toEqual([
    ["outputTokensPerSecond", -20, true],
    ["ttftMilliseconds", 0, false],
    ["tpotMilliseconds", 0, false],
  ]);
  expect(changesBetween(run(80), undefined)).toEqual([]);
});

test("people are told what was expected and measured, and how to go on", () => {
  expect(summaryOf(run(80))).toBe("single-stream 80 tokens/s at 1, TTFT 15.9 ms, TPOT 15.9 ms");
  expect(renderBreaches(breachesOf(run(10), undefined, [{ ...bound, atLeast: 20 }]))).toBe(
    "1 threshold of the benchmark not kept. The server is up and serves.\n\n" +
      "  single-stream: outputTokensPerSecond\n    expected  at least 20 per second\n    measured  10 per second at concurrency 1\n\n" +
      "  mend: find what made it slower; or measure again: pulumi up --replace '**benchmark-run'\n" +
      "        or let it pass: pulumi config set --path benchmark.onBreach warn",
  );
});

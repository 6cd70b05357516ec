import { benchmarkMetrics, type BenchmarkFigures, type BenchmarkMetric, levelOf } from "./benchmark";
import type { Settings } from "./schema";

type Threshold = Settings["benchmark"]["thresholds"][number];

/** A threshold that a run is beyond. */
export interface Breach {
  threshold: Threshold;
  /** What was asked for, and what was measured, with units. */
  expected: string;
  measured: string;
}

/** What a figure was before and is now. */
export interface Change {
  scenario: string;
  concurrency: number;
  metric: BenchmarkMetric;
  /** Medians of the last good run and of this one. */
  before: number;
  now: number;
  /** Of the value before, percent. */
  changePercent: number;
  /** No repeat is within the range of the last good runs' repeats. */
  beyondNoise: boolean;
}

/**
 * How many of the last good runs a run is compared with. Repeats of one run lie closer together than runs do that are minutes or
 * days apart: of nine figures in 20 runs on the lab's busy machine, 15 were more than 20 % worse than the run before, and none
 * was more than 10 % worse than the worst of five.
 */
const compared = 5;

/**
 * How many good runs a run is held against at least. One alone may have been a lucky one, and then none after it counts as good.
 * Of another 21 runs, either way in time, 13 of 40 were in one of the figures more than 20 % worse than the one before, 3 of 38
 * than the worst of two, and 1 of 36, a hiccup of the machine, than the worst of three; no fewer than the worst of four or five.
 */
const enough = 3;

/** The runs before that count: the last five that were beyond no threshold themselves, oldest first. */
export function goodRuns(
  earlier: readonly BenchmarkFigures[],
  thresholds: readonly Threshold[],
): readonly BenchmarkFigures[] {
  let good: BenchmarkFigures[] = [];
  for (const run of earlier) if (breachesOf(run, good, thresholds).length === 0) good = [...good, run].slice(-compared);
  return good;
}

/** What a run is beyond, each threshold by itself. */
export function breachesOf(
  run: BenchmarkFigures,
  good: readonly BenchmarkFigures[],
  thresholds: readonly Threshold[],
): Breach[] {
  return thresholds.flatMap((threshold): Breach[] => {
    const { metric, atLeast, atMost, maxWorsePercent } = threshold;
    const level = levelOf(run, threshold.scenario, threshold.concurrency);
    const figure = level?.[metric];
    if (level === undefined || figure == null)
      return [
        { threshold, expected: "a figure", measured: level ? "none: see the benchmark's method" : "no such level" },
      ];
    const unit = metric.endsWith("Milliseconds") ? "ms" : "per second";
    const told = (value: number) => `${round(value)} ${unit} at concurrency ${level.concurrency}`;
    const breaches: Breach[] = [];
    if (atLeast !== undefined && figure.median < atLeast)
      breaches.push({ threshold, expected: `at least ${atLeast} ${unit}`, measured: told(figure.median) });
    if (atMost !== undefined && figure.median > atMost)
      breaches.push({ threshold, expected: `at most ${atMost} ${unit}`, measured: told(figure.median) });
    const before = rangeOf(run, good, threshold);
    if (maxWorsePercent === undefined || before === undefined || before.runs < enough) return breaches;
    const isRate = benchmarkMetrics[metric] === "higher";
    const [best, worst] = isRate ? [figure.high, before.low] : [figure.low, before.high];
    const worse = round((isRate ? 1 - best / worst : best / worst - 1) * 100);
    if (worse > maxWorsePercent)
      breaches.push({
        threshold,
        expected: `the best repeat at most ${maxWorsePercent} % worse than ${round(worst)} ${unit}, the worst of the last ${before.runs} good runs`,
        measured: `${told(best)}, ${worse} % worse`,
      });
    return breaches;
  });
}

/** The change of each level's throughput, and of its times to the first and the next token, since the last good run. */
export function changesSince(run: BenchmarkFigures, good: readonly BenchmarkFigures[]): Change[] {
  const metrics = ["outputTokensPerSecond", "ttftMilliseconds", "tpotMilliseconds"] as const;
  return run.scenarios.flatMap(({ name: scenario, levels }) =>
    levels.flatMap((level) =>
      metrics.flatMap((metric): Change[] => {
        const { concurrency } = level;
        const range = rangeOf(run, good, { scenario, concurrency, metric });
        if (range === undefined) return [];
        const [before, now] = [range.median, level[metric]];
        const changePercent = round((now.median / before - 1) * 100);
        const beyondNoise = now.low > range.high || now.high < range.low;
        return [{ scenario, concurrency, metric, before, now: now.median, changePercent, beyondNoise }];
      }),
    ),
  );
}

/**
 * The range of all repeats of the good runs, and the median of the last of them. Undefined: none of them has this figure; the
 * same name with other lengths, or measured by another tool, is another scenario. A peak that has moved is compared as the peak.
 */
function rangeOf(
  run: BenchmarkFigures,
  good: readonly BenchmarkFigures[],
  { scenario, concurrency, metric }: Pick<Threshold, "scenario" | "concurrency" | "metric">,
): { low: number; high: number; median: number; runs: number } | undefined {
  const shape = (of: BenchmarkFigures) => {
    const found = of.scenarios.find(({ name }) => name === scenario);
    return found && [of.tool, found.inputTokens, found.prefixTokens, found.outputTokens].join();
  };
  const figures = good
    .filter((each) => shape(each) === shape(run))
    .flatMap((each) => levelOf(each, scenario, concurrency)?.[metric] ?? []);
  const last = figures.at(-1);
  if (last === undefined) return undefined;
  return {
    low: Math.min(...figures.map(({ low }) => low)),
    high: Math.max(...figures.map(({ high }) => high)),
    median: last.median,
    runs: figures.length,
  };
}

/** One line for people: each scenario at its peak; by `llama-benchy` at each level, as its community writes it. */
export function summaryOf(run: BenchmarkFigures): string {
  return run.scenarios
    .map(({ name, peakConcurrency, levels, inputTokens, outputTokens }) => {
      const level = levelOf(run, name);
      if (level === undefined) return name;
      const known = levels.flatMap(({ concurrency, ppTokensPerSecond: pp, tgTokensPerSecond: tg }) =>
        pp && tg
          ? `pp${inputTokens} (c${concurrency}) ${round(pp.median)}, tg${outputTokens} (c${concurrency}) ${round(tg.median)}`
          : [],
      );
      if (known.length > 0) return `${name} ${known.join(", ")} tokens/s`;
      const { outputTokensPerSecond, ttftMilliseconds, tpotMilliseconds } = level;
      return `${name} ${round(outputTokensPerSecond.median)} tokens/s at ${peakConcurrency}, TTFT ${round(ttftMilliseconds.median)} ms, TPOT ${round(tpotMilliseconds.median)} ms`;
    })
    .join("; ");
}

/** Which relative thresholds are not held yet for want of runs, for a person; undefined where each is. */
export function renderTooFew(
  run: BenchmarkFigures,
  good: readonly BenchmarkFigures[],
  thresholds: readonly Threshold[],
): string | undefined {
  const few = thresholds.flatMap((threshold) => {
    const runs = rangeOf(run, good, threshold)?.runs ?? 0;
    return threshold.maxWorsePercent === undefined || runs >= enough ? [] : `${threshold.scenario} (${runs} so far)`;
  });
  if (few.length === 0) return undefined;
  return (
    `maxWorsePercent is held against ${enough} good runs or more, and not yet for ${[...new Set(few)].join(", ")}.\n` +
    "  measure again: pulumi up --replace '**benchmark-run'"
  );
}

/** What is wrong and how to go on, for a person. */
export function renderBreaches(breaches: readonly Breach[]): string {
  const lines = breaches.map(
    ({ threshold, expected, measured }) =>
      `  ${threshold.scenario}: ${threshold.metric}\n    expected  ${expected}\n    measured  ${measured}\n`,
  );
  return (
    `${breaches.length} ${breaches.length === 1 ? "threshold" : "thresholds"} of the benchmark not kept. The server is up and serves.\n\n${lines.join("\n")}\n` +
    "  mend: find what made it slower; or measure again: pulumi up --replace '**benchmark-run'\n" +
    "        or let it pass: pulumi config set --path benchmark.onBreach warn"
  );
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}

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
  before: number;
  now: number;
  /** Of the value before, percent. */
  changePercent: number;
  /** No repeat of one run is within the range of the other's: more than their own noise. */
  beyondNoise: boolean;
}

/** The run before that is comparable: the latest one that was beyond no threshold itself. Undefined: there is none. */
export function lastGood(
  earlier: readonly BenchmarkFigures[],
  thresholds: readonly Threshold[],
): BenchmarkFigures | undefined {
  let good: BenchmarkFigures | undefined;
  for (const run of earlier) if (breachesOf(run, good, thresholds).length === 0) good = run;
  return good;
}

/** What a run is beyond, each threshold by itself. */
export function breachesOf(
  run: BenchmarkFigures,
  baseline: BenchmarkFigures | undefined,
  thresholds: readonly Threshold[],
): Breach[] {
  return thresholds.flatMap((threshold): Breach[] => {
    const { scenario, metric, atLeast, atMost, maxWorsePercent } = threshold;
    const level = levelOf(run, scenario, threshold.concurrency);
    const figure = level?.[metric];
    if (level === undefined || figure == null)
      return [
        { threshold, expected: "a figure", measured: level ? "none: see the benchmark's method" : "no such level" },
      ];
    const unit = metric.endsWith("Milliseconds") ? "ms" : "per second";
    const measured = `${round(figure.median)} ${unit} at concurrency ${level.concurrency}`;
    const breaches: Breach[] = [];
    if (atLeast !== undefined && figure.median < atLeast)
      breaches.push({ threshold, expected: `at least ${atLeast} ${unit}`, measured });
    if (atMost !== undefined && figure.median > atMost)
      breaches.push({ threshold, expected: `at most ${atMost} ${unit}`, measured });
    const change = maxWorsePercent === undefined ? undefined : changeOf(run, baseline, threshold);
    if (change !== undefined && maxWorsePercent !== undefined && change.beyondNoise) {
      const worse = benchmarkMetrics[metric] === "higher" ? -change.changePercent : change.changePercent;
      if (worse > maxWorsePercent)
        breaches.push({
          threshold,
          expected: `at most ${maxWorsePercent} % worse than ${round(change.before)} ${unit} of the last good run, ${baseline?.startedAt ?? ""}`,
          measured: `${measured}: ${signed(change.changePercent)}`,
        });
    }
    return breaches;
  });
}

/** The change of each level's throughput, and of its times to the first and the next token. */
export function changesBetween(run: BenchmarkFigures, baseline: BenchmarkFigures | undefined): Change[] {
  const metrics = ["outputTokensPerSecond", "ttftMilliseconds", "tpotMilliseconds"] as const;
  return run.scenarios.flatMap(({ name, levels }) =>
    levels.flatMap(({ concurrency }) =>
      metrics.flatMap((metric) => changeOf(run, baseline, { scenario: name, concurrency, metric }) ?? []),
    ),
  );
}

/** Undefined: there is nothing to compare it with. The same name with other lengths is another scenario. */
function changeOf(
  run: BenchmarkFigures,
  baseline: BenchmarkFigures | undefined,
  { scenario, concurrency, metric }: Pick<Threshold, "scenario" | "concurrency" | "metric">,
): Change | undefined {
  const shape = (of: BenchmarkFigures | undefined) => {
    const found = of?.scenarios.find(({ name }) => name === scenario);
    return found && [found.inputTokens, found.prefixTokens, found.outputTokens].join();
  };
  if (baseline === undefined || shape(run) !== shape(baseline)) return undefined;
  const level = levelOf(run, scenario, concurrency);
  // The peak may have moved: that is a change too, so it is compared as the peak.
  const [now, before] = [level?.[metric], levelOf(baseline, scenario, concurrency)?.[metric]];
  if (level === undefined || now == null || before == null) return undefined;
  return {
    scenario,
    concurrency: level.concurrency,
    metric,
    before: before.median,
    now: now.median,
    changePercent: round(((now.median - before.median) / before.median) * 100),
    beyondNoise: now.low > before.high || now.high < before.low,
  };
}

/** One line for people: each scenario at its peak. */
export function summaryOf(run: BenchmarkFigures): string {
  return run.scenarios
    .map(({ name, peakConcurrency }) => {
      const level = levelOf(run, name);
      if (level === undefined) return name;
      const { outputTokensPerSecond, ttftMilliseconds, tpotMilliseconds } = level;
      return `${name} ${round(outputTokensPerSecond.median)} tokens/s at ${peakConcurrency}, TTFT ${round(ttftMilliseconds.median)} ms, TPOT ${round(tpotMilliseconds.median)} ms`;
    })
    .join("; ");
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

function signed(percent: number): string {
  return `${percent > 0 ? "+" : ""}${percent} %`;
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}

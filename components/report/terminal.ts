import type { BenchmarkFigures } from "../benchmark";
import { table } from "../table";
import { none, number, range } from "./format";

const header = [
  "scenario",
  "concurrency",
  "requests",
  "output tokens/s",
  "TTFT p50 ms",
  "TTFT p99 ms",
  "TPOT p50 ms",
  "TPOT p99 ms",
  "ITL p50 ms",
];

/** The figures of each level for a terminal: tokens/s as median [lowest–highest] of the repeats. */
export function renderFigures({ scenarios }: BenchmarkFigures): string {
  const rows = scenarios.flatMap(({ name, levels }) =>
    levels.map((level) => [
      name,
      String(level.concurrency),
      String(level.requests),
      range(level.outputTokensPerSecond),
      number(level.ttftMilliseconds.median),
      number(level.ttftMilliseconds.p99),
      number(level.tpotMilliseconds.median),
      number(level.tpotMilliseconds.p99),
      level.itlMilliseconds === null ? none : number(level.itlMilliseconds.median),
    ]),
  );
  return table([header, ...rows]);
}

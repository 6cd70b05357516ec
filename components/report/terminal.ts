import type { BenchmarkFigures, BenchmarkLevel } from "../benchmark";
import { table } from "../table";
import { none, number, range } from "./format";

const columns: readonly [header: string, of: (level: BenchmarkLevel) => string][] = [
  ["concurrency", ({ concurrency }) => String(concurrency)],
  ["requests", ({ requests }) => String(requests)],
  ["output tokens/s", ({ outputTokensPerSecond }) => range(outputTokensPerSecond)],
  ["TTFT p50 ms", ({ ttftMilliseconds }) => number(ttftMilliseconds.median)],
  ["TTFT p99 ms", ({ ttftMilliseconds }) => number(ttftMilliseconds.p99)],
  ["TPOT p50 ms", ({ tpotMilliseconds }) => number(tpotMilliseconds.median)],
  ["TPOT p99 ms", ({ tpotMilliseconds }) => number(tpotMilliseconds.p99)],
  ["ITL p50 ms", ({ itlMilliseconds }) => (itlMilliseconds === null ? none : number(itlMilliseconds.median))],
];

/** What `llama-benchy` has besides. */
const more: typeof columns = [
  ["pp tokens/s", ({ ppTokensPerSecond }) => range(ppTokensPerSecond)],
  ["tg tokens/s", ({ tgTokensPerSecond }) => range(tgTokensPerSecond)],
];

/** The figures of each level for a terminal: tokens/s as median [lowest–highest] of the repeats. */
export function renderFigures({ tool, scenarios }: BenchmarkFigures): string {
  const shown = tool === "llama-benchy" ? [...columns, ...more] : columns;
  const rows = scenarios.flatMap(({ name, levels }) =>
    levels.map((level) => [name, ...shown.map(([, of]) => of(level))]),
  );
  return table([["scenario", ...shown.map(([header]) => header)], ...rows]);
}

import type { BenchmarkLevel, BenchmarkScenario } from "../benchmark";

/** What stands for a figure that there is not. */
export const none = "–";

/** A figure with three digits, or all before the point. */
export function number(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** The median of the repeats, and the lowest and the highest of them. */
export function range(figure: BenchmarkLevel["outputTokensPerSecond"] | null): string {
  return figure === null ? none : `${number(figure.median)} [${number(figure.low)}–${number(figure.high)}]`;
}

/** A time in UTC, with minutes. */
export function time(startedAt: string): string {
  return new Date(startedAt).toISOString().slice(0, 16).replace("T", " ");
}

/** A scenario's name with what its requests are: two of the same name may differ in that. Lengths in tokens. */
export function scenarioTitle({ name, prefixTokens, inputTokens, outputTokens }: BenchmarkScenario): string {
  const prefix = prefixTokens > 0 ? `${prefixTokens} shared + ` : "";
  return `${name} (${prefix}${inputTokens} in, ${outputTokens} out)`;
}

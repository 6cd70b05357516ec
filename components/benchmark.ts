import { z } from "zod";

/** The load tools that `tools.py` knows. */
export const benchmarkTools = ["vllm-bench", "llama-benchy"] as const;

export type BenchmarkTool = (typeof benchmarkTools)[number];

/** A figure that each repeat has one of: their median, the lowest and the highest. */
const rate = z.object({ median: z.number().positive(), low: z.number(), high: z.number() });

/**
 * A time that each request has: the median of the repeats' medians, the lowest and the highest of these, and percentiles
 * of all requests of all repeats.
 */
const latency = rate.extend({ p90: z.number(), p99: z.number() });

const levelSchema = z.object({
  /** Requests under way at once. */
  concurrency: z.int().positive(),
  /** Requests of one repeat. */
  requests: z.int().positive(),
  /** Requests before the measured ones, with prompts of their own. */
  warmupRequests: z.int(),
  /** Of the random prompts, by repeat. No two are alike, or the prefix cache would be measured. */
  seeds: z.array(z.int()),
  durationSeconds: rate,
  requestsPerSecond: rate,
  outputTokensPerSecond: rate,
  totalTokensPerSecond: rate,
  /** How fast a prompt is read: its tokens over the time to the first token. Null: requests wait for each other, or share a prefix. */
  promptTokensPerSecond: rate.nullable(),
  /**
   * As `llama-benchy` has them, whose requests are sent all at once: prompt tokens a second until each request has its first
   * token, and output tokens a second from the first token on. Null: another tool.
   */
  ppTokensPerSecond: rate.nullable().default(null),
  tgTokensPerSecond: rate.nullable().default(null),
  /** Time to first token. */
  ttftMilliseconds: latency,
  /** Time per output token after the first. */
  tpotMilliseconds: latency,
  /** Time between two tokens. Null: too many came together, so it was not seen. */
  itlMilliseconds: latency.nullable(),
});

const scenarioResult = z.object({
  name: z.string(),
  /** Tokens of a prompt that are its own. */
  inputTokens: z.int(),
  /** Tokens before them that all prompts share. */
  prefixTokens: z.int(),
  outputTokens: z.int(),
  levels: z.array(levelSchema).min(1),
  /** Concurrency of the level with the most output tokens a second, of those within the scenario's bound. */
  peakConcurrency: z.int().positive(),
  /** Why there is no further level. */
  ended: z.enum(["all levels measured", "throughput stopped growing", "TTFT over its bound"]),
});

/** What is kept of every run. */
export const runSchema = z.object({
  /** When it began. */
  startedAt: z.iso.datetime({ offset: true }),
  /** What made the load. */
  tool: z.enum(benchmarkTools).default("vllm-bench"),
  scenarios: z.array(scenarioResult).min(1),
});

const resultSchema = runSchema.extend({
  /** Of this object: names that are there keep their meaning and unit. */
  version: z.literal(1),
  /** How it was measured. */
  method: z.object({
    /** What made the load, with its version. */
    tool: z.string(),
    /** Where the requests went, and from which machine. */
    endpoint: z.string(),
    driver: z.string(),
    dataset: z.string(),
    model: z.string(),
    repeats: z.int().positive(),
    durationSeconds: z.number(),
    tokensCountedBy: z.string(),
    /** Image of the server, by Docker's id. */
    image: z.string(),
    /** SHA-256 of the server's arguments and of its image: the same, the same server. */
    serverDigest: z.string(),
    /** What was held against the figures, and what could not be. */
    checks: z.array(z.string()),
    unchecked: z.array(z.string()),
  }),
  /** Earlier runs of this deployment, oldest first. */
  earlier: z.array(runSchema),
});

export type BenchmarkLevel = z.output<typeof levelSchema>;
export type BenchmarkScenario = z.output<typeof scenarioResult>;
export type BenchmarkFigures = z.output<typeof runSchema>;
/** Figures of a whole run, with those before it. */
export type BenchmarkResult = z.output<typeof resultSchema>;

/** Reads the JSON that `benchmark.py` prints. */
export function parseBenchmark(text: string): BenchmarkResult {
  return resultSchema.parse(JSON.parse(text));
}

/** Figures that a threshold can be set for, and which way is better. */
export const benchmarkMetrics = {
  outputTokensPerSecond: "higher",
  totalTokensPerSecond: "higher",
  requestsPerSecond: "higher",
  promptTokensPerSecond: "higher",
  ppTokensPerSecond: "higher",
  tgTokensPerSecond: "higher",
  ttftMilliseconds: "lower",
  tpotMilliseconds: "lower",
  itlMilliseconds: "lower",
} as const;

export type BenchmarkMetric = keyof typeof benchmarkMetrics;

/** A run's level: that of this concurrency, or the scenario's peak. */
export function levelOf(run: BenchmarkFigures, name: string, concurrency?: number): BenchmarkLevel | undefined {
  const scenario = run.scenarios.find((each) => each.name === name);
  return scenario?.levels.find((level) => level.concurrency === (concurrency ?? scenario.peakConcurrency));
}

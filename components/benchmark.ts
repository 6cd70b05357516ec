import { z } from "zod";

/** Figures of one scenario, as `benchmark.py` reports them. Units are in the names. */
const scenarioResult = z.object({
  name: z.string(),
  maxConcurrency: z.int(),
  inputTokensPerRequest: z.int(),
  outputTokensPerRequest: z.int(),
  completedRequests: z.int().positive(),
  failedRequests: z.literal(0),
  /** Requests before the measured ones, with prompts of their own. */
  warmupRequests: z.int(),
  /** Of the random prompts. Another for each scenario and run, or the prefix cache would be measured. */
  seed: z.int(),
  durationSeconds: z.number().positive(),
  requestsPerSecond: z.number().positive(),
  outputTokensPerSecond: z.number().positive(),
  totalTokensPerSecond: z.number().positive(),
  /** Time to first token. */
  ttftMeanMilliseconds: z.number(),
  ttftMedianMilliseconds: z.number(),
  ttftP99Milliseconds: z.number(),
  /** Time per output token after the first. */
  tpotMeanMilliseconds: z.number(),
  tpotMedianMilliseconds: z.number(),
  tpotP99Milliseconds: z.number(),
  /** Time between two chunks. */
  itlMeanMilliseconds: z.number(),
  itlMedianMilliseconds: z.number(),
  itlP99Milliseconds: z.number(),
});

const resultSchema = z.object({
  tool: z.string(),
  model: z.string(),
  startedAt: z.iso.datetime({ offset: true }),
  scenarios: z.array(scenarioResult).min(1),
});

/** Figures of a whole run. */
export type BenchmarkResult = z.infer<typeof resultSchema>;

/** Reads the JSON that `benchmark.py` prints. */
export function parseBenchmark(text: string): BenchmarkResult {
  return resultSchema.parse(JSON.parse(text));
}

import * as fs from "node:fs";
import type { BenchmarkTool } from "../../components/benchmark";
import { stepArguments, stepProgram } from "../../components/step";
import { execOn } from "../../scripts/virtual-sparks/hosts";
import type { RunResult } from "../../scripts/virtual-sparks/run";
import type { Node } from "../../scripts/virtual-sparks/topology";

/** Ports of the API with known timing, and of the deployment's own. */
const knownTiming = 8999;
export const deployment = 8000;

/** A scenario whose answers are of so many tokens, which chooses the case. */
export const timingCase = (outputTokens: number, more: object = {}) => ({
  name: `case-${outputTokens}`,
  requests: 2,
  concurrency: [1],
  inputTokens: 64,
  prefixTokens: 0,
  outputTokens,
  ...more,
});

/** Measures scenarios with a real load tool, as the benchmark's step does. */
export async function measure(
  head: Node,
  tool: BenchmarkTool,
  scenarios: ReturnType<typeof timingCase>[],
  port = knownTiming,
): Promise<RunResult> {
  const step = ["known-timing", tool, ...scenarios.map(({ name }) => name)].join("-");
  const args = [
    ...["dgx-spark-lab-server", String(port), "tiny-qwen3-moe", "/home/aurora/models/tiny-qwen3-moe"],
    ...[`/tmp/${step}.jsonl`, JSON.stringify({ repeats: 1, tool, scenarios })],
  ];
  const call = { script: "benchmark.py", args };
  const at = { directory: "/tmp/known-timing", node: "spark-1", step, timeoutSeconds: 120, mode: "create" as const };
  return execOn(head, stepArguments(call, at), { input: stepProgram([call.script]) });
}

/** The API with known timing, on the head, for as long as `run` takes. */
export async function withKnownTiming<T>(head: Node, run: () => Promise<T>): Promise<T> {
  const source = fs.readFileSync("test/lab/known-timing.py", "utf8");
  const server = execOn(head, ["timeout", "300", "python3", "-c", source, String(knownTiming)]);
  try {
    return await run();
  } finally {
    await execOn(head, ["pkill", "-f", `ThreadingHTTPServer.* ${knownTiming}$`]);
    await server;
    await execOn(head, ["sh", "-c", "rm -rf /tmp/known-timing*"]);
  }
}

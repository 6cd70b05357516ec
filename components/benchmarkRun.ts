import * as pulumi from "@pulumi/pulumi";
import { type BenchmarkResult, parseBenchmark } from "./benchmark";
import { breachesOf, type Change, changesSince, goodRuns, renderBreaches, renderTooFew, summaryOf } from "./thresholds";
import { containerName } from "./container";
import { remoteStep, resultOf } from "./remoteStep";
import type { Settings } from "./schema";
import type { SparkNode } from "./sparkNode";
import type { VllmServer } from "./vllmServer";

export interface BenchmarkRunArgs {
  /** The head, where the load is made too. */
  head: SparkNode;
  deployment: string;
  server: VllmServer;
  settings: Pick<Settings, "benchmark" | "model" | "server">;
}

/** Figures of a run, with what people ask of them. */
export interface BenchmarkOutput extends BenchmarkResult {
  /** One line for people. */
  summary: string;
  /** Against the last run that kept its thresholds; null: there is none. */
  comparison: { startedAt: string; changes: Change[] } | null;
}

/**
 * A benchmark of the server, by a load tool in the serving image: the model is looked up, then it runs. A run whose figures
 * are not to be trusted fails the resource. Thresholds are held against what it found, each time the program runs: another
 * threshold measures nothing again.
 */
export class BenchmarkRun extends pulumi.ComponentResource {
  /** Undefined: an update left it out. */
  readonly result: pulumi.Output<BenchmarkOutput | undefined>;

  constructor(name: string, args: BenchmarkRunArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:BenchmarkRun", name, {}, opts);
    const { head, server, settings } = args;
    const { repeats, tool, scenarios, thresholds, onBreach, keepEarlier } = settings.benchmark;
    const container = containerName(args.deployment, "server");
    const port = String(settings.server.port);

    const served = remoteStep(
      `${name}-model`,
      {
        node: head,
        create: { script: "check_served_model.py", args: [container, port, settings.model.name] },
        triggers: [server.container.id],
        timeoutSeconds: 60,
      },
      { parent: this, dependsOn: server.ready },
    );
    const run = remoteStep(
      `${name}-run`,
      {
        node: head,
        create: {
          script: "benchmark.py",
          args: [
            container,
            port,
            settings.model.name,
            settings.model.path,
            // In the deployment's folder it goes with it.
            `${head.directory}${keepEarlier ? "-" : "/"}benchmarks.jsonl`,
            JSON.stringify({ repeats, tool, scenarios }),
          ],
        },
        triggers: [server.container.id, { repeats, tool, scenarios }],
        timeoutSeconds: Math.ceil(settings.benchmark.timeoutMinutes * 60),
      },
      { parent: this, dependsOn: served },
    );
    const measured = resultOf(run, (text) => {
      const result = parseBenchmark(text);
      return { result, good: goodRuns(result.earlier, thresholds) };
    });
    this.result = measured.apply((found) => {
      if (found === undefined) return undefined;
      const { result, good } = found;
      const last = good.at(-1);
      const comparison = last ? { startedAt: last.startedAt, changes: changesSince(result, good) } : null;
      return { ...result, summary: summaryOf(result), comparison };
    });
    // Beside the output, which is there all the same, as the server is.
    measured.apply((found) => {
      if (found === undefined) return;
      const tooFew = renderTooFew(found.result, found.good, thresholds);
      if (tooFew !== undefined) void pulumi.log.info(tooFew, run);
      const breaches = breachesOf(found.result, found.good, thresholds);
      if (breaches.length === 0) return;
      const told = renderBreaches(breaches);
      if (onBreach === "warn") void pulumi.log.warn(`\n${told}\n`, run);
      else throw withoutStack(new pulumi.RunError(told));
    });
    this.registerOutputs({ result: this.result });
  }
}

/** Pulumi leaves a `RunError`'s stack out while the program runs, and shows it of one that comes after its end. */
function withoutStack(error: pulumi.RunError): pulumi.RunError {
  error.stack = error.message;
  return error;
}

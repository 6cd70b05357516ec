import * as pulumi from "@pulumi/pulumi";
import { type BenchmarkResult, parseBenchmark } from "./benchmark";
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

/**
 * A benchmark of the server, by the load tool in the serving image: the model is looked up, then it runs. A run with failed
 * or empty requests fails the resource.
 */
export class BenchmarkRun extends pulumi.ComponentResource {
  /** Undefined: an update left it out. */
  readonly result: pulumi.Output<BenchmarkResult | undefined>;

  constructor(name: string, args: BenchmarkRunArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:BenchmarkRun", name, {}, opts);
    const { head, server, settings } = args;
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
            JSON.stringify(settings.benchmark.scenarios),
          ],
        },
        triggers: [server.container.id, settings.benchmark.scenarios],
        timeoutSeconds: Math.ceil(settings.benchmark.timeoutMinutes * 60),
      },
      { parent: this, dependsOn: served },
    );
    this.result = resultOf(run, parseBenchmark);
    this.registerOutputs({ result: this.result });
  }
}

import * as pulumi from "@pulumi/pulumi";
import { type BenchmarkResult, parseBenchmark } from "./benchmark";
import { containerName } from "./container";
import { copyToNode, remoteStep, resultOf } from "./remoteStep";
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

const driver = "benchmark.py";

/**
 * A benchmark of the server, by the load tool in the serving image: the model is looked up, the driver is copied to the
 * head and checked, then it runs. A run with failed or empty requests fails the resource.
 */
export class BenchmarkRun extends pulumi.ComponentResource {
  readonly result: pulumi.Output<BenchmarkResult>;

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
    const file = `${head.directory}/${driver}`;
    const copied = copyToNode(
      `${name}-driver`,
      { node: head, source: `scripts/benchmark/${driver}`, remotePath: file },
      { parent: this, dependsOn: head.ready },
    );
    const checked = remoteStep(
      `${name}-syntax`,
      { node: head, create: { script: "check_syntax.py", args: [file] }, timeoutSeconds: 30 },
      { parent: this, dependsOn: copied },
    );
    const run = remoteStep(
      `${name}-run`,
      {
        node: head,
        create: {
          script: file,
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
      { parent: this, dependsOn: [served, checked] },
    );
    this.result = resultOf(run, parseBenchmark);
    this.registerOutputs({ result: this.result });
  }
}

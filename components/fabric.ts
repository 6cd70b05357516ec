import * as pulumi from "@pulumi/pulumi";
import type { AllReduceResult } from "./preflight/allReduce";
import type { FabricFigures } from "./preflight/report";
import { type Preflight, preflightStep, unjudged } from "./preflight";
import type { RayCluster } from "./rayCluster";
import type { Settings } from "./schema";

export interface FabricArgs {
  settings: Settings;
  deployment: string;
  preflight: Preflight;
  cluster: RayCluster;
}

/** What is known of the link between the nodes. */
export interface FabricOutput {
  /** From every node to every other, before the deployment. */
  paths: FabricFigures[];
  /** Between all ranks, before the model was loaded; null: there is one node. */
  allReduce: AllReduceResult["figures"];
}

/**
 * The fabric as the engine uses it: an all-reduce over one rank a node, in Ray's containers, with the transport that NCCL
 * says it uses. A fabric that does not work ends the update here, and not after the model is loaded.
 */
export class Fabric extends pulumi.ComponentResource {
  /** The ranks can work together after this. */
  readonly ready: pulumi.Resource;
  readonly output: pulumi.Output<FabricOutput>;

  constructor(name: string, args: FabricArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:Fabric", name, {}, opts);
    const { preflight, cluster, deployment } = args;
    this.ready = cluster.ready;
    let allReduce: pulumi.Output<AllReduceResult["figures"]> = pulumi.output(null);
    if (args.settings.nodes.length > 1) {
      const { step, result } = preflightStep<AllReduceResult>(
        `${name}-all-reduce`,
        {
          step: "all-reduce",
          deployment,
          // Without what it does not depend on.
          settings: { ...args.settings, ...unjudged, server: undefined },
          triggers: cluster.containers.map(({ id }) => id),
        },
        { parent: this, dependsOn: cluster.ready },
      );
      allReduce = result.apply((found) => found?.figures ?? null);
      this.ready = step;
    }
    this.output = pulumi.all([preflight.paths, allReduce]).apply(([paths, figures]) => ({ paths, allReduce: figures }));
    this.registerOutputs({ fabric: this.output });
  }
}

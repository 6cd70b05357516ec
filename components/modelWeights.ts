import * as pulumi from "@pulumi/pulumi";
import { remoteStep } from "./remoteStep";
import type { SparkNode } from "./sparkNode";

export interface ModelWeightsArgs {
  nodes: readonly SparkNode[];
  /** Absolute path of the model's folder, the same on every node. */
  path: string;
}

/** Checks that the model is whole and readable on every node. The weights themselves are left alone. */
export class ModelWeights extends pulumi.ComponentResource {
  readonly ready: pulumi.Resource[];

  constructor(name: string, args: ModelWeightsArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:ModelWeights", name, {}, opts);
    this.ready = args.nodes.map((node) =>
      remoteStep(
        `${name}-${node.name}`,
        { node, create: { script: "check_model.py", args: [args.path] }, timeoutSeconds: 120 },
        { parent: this },
      ),
    );
    this.registerOutputs({});
  }
}

import * as docker from "@pulumi/docker";
import * as pulumi from "@pulumi/pulumi";
import * as random from "@pulumi/random";
import { containerName } from "./container";
import type { ContainerImage } from "./containerImage";
import { engineContainer } from "./engineContainer";
import { memoryDemand } from "./memory";
import type { ModelWeights } from "./modelWeights";
import { rankEnvironment, sessionDirectory } from "./rank";
import { rayAddress, rayArguments, rayPorts } from "./ray";
import { remoteStep } from "./remoteStep";
import type { Settings } from "./schema";
import type { SparkNode } from "./sparkNode";

export interface RayClusterArgs {
  head: SparkNode;
  workers: readonly SparkNode[];
  deployment: string;
  settings: Pick<Settings, "accelerator" | "model" | "server">;
  image: ContainerImage;
  weights: ModelWeights;
  /** Variables that hold secrets, as `NAME=value`. */
  secretEnvironment: pulumi.Output<string[]>;
}

/** Joining took 9 s in the lab; a Spark's first start of Ray's processes is slower. */
const joinTimeoutSeconds = 180;

/**
 * Ray on every node: one container each, pinned to the node's fabric address, and a gate that passes when exactly
 * these addresses are alive.
 */
export class RayCluster extends pulumi.ComponentResource {
  /** Ray's containers, head first. What uses the cluster is replaced with any of them. */
  readonly containers: docker.Container[];
  /** The whole cluster is alive after this. */
  readonly ready: pulumi.Resource;
  /** Variables that hold secrets, as `NAME=value`, for all that takes part in the cluster. */
  readonly secretEnvironment: pulumi.Output<string[]>;
  /** Volume on the head with Ray's session, which a driver in another container needs. Docker makes it with the first of them. */
  readonly session: string;

  constructor(name: string, args: RayClusterArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:RayCluster", name, {}, opts);
    const { head, workers } = args;

    // Ray's ports are open on every address of a node, and run what they are told: none answers without the token.
    const token = new random.RandomPassword(`${name}-token`, { length: 40, special: false }, { parent: this }).result;
    this.secretEnvironment = pulumi
      .all([token, args.secretEnvironment])
      .apply(([value, secrets]) => [`RAY_AUTH_TOKEN=${value}`, ...secrets]);
    this.session = containerName(args.deployment, "session");
    const headContainer = this.startRay(`${name}-${head.name}`, head, args, []);
    const workerContainers = workers.map((worker) =>
      // A worker of the former head's cluster does not join the new one.
      this.startRay(`${name}-${worker.name}`, worker, args, [headContainer]),
    );
    this.containers = [headContainer, ...workerContainers];

    const addresses = [head, ...workers].map((node) => node.settings.fabric.address);
    this.ready = remoteStep(
      `${name}-gate`,
      {
        node: head,
        create: {
          script: "wait_for_ray.py",
          args: [
            containerName(args.deployment, "ray"),
            rayAddress(head.settings),
            String(joinTimeoutSeconds - 20),
            ...addresses,
          ],
        },
        triggers: this.containers.map((container) => container.id),
        timeoutSeconds: joinTimeoutSeconds,
      },
      { parent: this, dependsOn: this.containers },
    );
    this.registerOutputs({ address: rayAddress(head.settings) });
  }

  private startRay(name: string, node: SparkNode, args: RayClusterArgs, after: docker.Container[]): docker.Container {
    const { accelerator, model, server } = args.settings;
    return engineContainer(
      name,
      {
        node,
        deployment: args.deployment,
        accelerator,
        role: "ray",
        image: args.image.tag,
        argv: ["ray", ...rayArguments(node.settings, args.head.settings)],
        environment: rankEnvironment(node.settings, { accelerator, environment: server.environment }),
        secretEnvironment: this.secretEnvironment,
        // The ranks read it in Ray's containers.
        modelPath: model.path,
        // A node that was taken out stays in its cluster for as long as the head lives. Made anew, the head takes all workers
        // with it, also those that are no longer wanted, before the others join again.
        ...(node === args.head && {
          members: [node, ...args.workers].map(({ settings }) => settings.fabric.address).sort(),
        }),
        needs: { memory: memoryDemand(args.settings), ports: rayPorts(node === args.head) },
        // A worker may wait for its head for as long as it takes: Docker pauses up to a minute between starts.
        restart: "unless-stopped",
        volumes: node === args.head ? { [sessionDirectory]: this.session } : {},
        after,
      },
      { parent: this, dependsOn: [...args.image.ready, ...args.weights.ready] },
    );
  }
}

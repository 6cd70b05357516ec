import * as docker from "@pulumi/docker";
import * as pulumi from "@pulumi/pulumi";
import { containerName, environmentList, hardware } from "./container";
import { type Needs, prepareHook } from "./prepareContainer";
import type { Accelerator } from "./schema";
import type { SparkNode } from "./sparkNode";
import { modelMount } from "./vllm";

export interface EngineContainerArgs {
  node: SparkNode;
  deployment: string;
  role: "ray" | "server";
  /** Name of the image on the node. */
  image: string;
  accelerator: Accelerator;
  /** Program and arguments; the image's own entrypoint is not used. */
  argv: readonly [string, ...string[]];
  environment: Readonly<Record<string, string>>;
  /** Further variables, as `NAME=value`. */
  secretEnvironment: pulumi.Input<string[]>;
  modelPath: string;
  /** When Docker starts it again. */
  restart: "unless-stopped" | "on-failure";
  /** Names of Docker volumes, by the folder that they are mounted on. */
  volumes: Readonly<Record<string, string>>;
  /** Fabric addresses of the nodes that work together in it, where a change of these must make it anew. */
  members?: readonly string[];
  /** Another one makes it anew: the model in the folder is another. */
  model?: pulumi.Output<string>;
  /** Looked for just before it is made, beside the image. */
  needs: Omit<Needs, "image">;
  /** Containers that this one must not outlive: it is made anew when one of them is. */
  after: readonly docker.Container[];
}

/** A container of the engine: Ray on a node, or the server. Values that Docker would fill in are said, or every read shows a drift. */
export function engineContainer(
  name: string,
  args: EngineContainerArgs,
  opts: pulumi.CustomResourceOptions,
): docker.Container {
  const { node, deployment, role } = args;
  const container = containerName(deployment, role);
  const model = modelMount(args.modelPath);
  const [program, ...argumentsOfProgram] = args.argv;
  const environment = environmentList(args.environment);
  const after = pulumi.all(args.after.map(({ id }) => id)).apply((ids) => ids.map((id) => id.slice(0, 12)).join(" "));
  return new docker.Container(
    name,
    {
      ...hardware(args.accelerator),
      // Always the same. Made from the ids, it tells the engine that this one goes when one of those does: of a plain property
      // it knows that beforehand, and takes this one away first, also on a node that is being taken out.
      name: after.apply(() => container),
      image: args.image,
      entrypoints: [program],
      command: argumentsOfProgram,
      // Secret as a whole: a person may have put a secret among `server.environment`.
      envs: pulumi.secret(
        pulumi.all([args.secretEnvironment, after]).apply(([secrets, ids]) => [
          ...environment,
          ...secrets,
          // Another id makes it anew.
          ...(ids === "" ? [] : [`DGX_SPARK_SERVING_AFTER=${ids}`]),
        ]),
      ),
      labels: [
        // Which deployment a container on a shared machine belongs to.
        { label: "dgx-spark-serving.deployment", value: deployment },
        ...(args.members ? [{ label: "dgx-spark-serving.members", value: args.members.join(" ") }] : []),
        ...(args.model === undefined ? [] : [{ label: "dgx-spark-serving.model", value: args.model }]),
      ],
      mounts: [
        { type: "bind", source: model, target: model, readOnly: true },
        ...Object.entries(args.volumes).map(([target, volume]) => ({ type: "volume", source: volume, target })),
      ],
      networkMode: "host",
      ipcMode: "host",
      // A Ray driver finds the node it is on by the raylet's process, which is in another container.
      pidMode: "host",
      // Also after a reboot.
      restart: args.restart,
      logDriver: "json-file",
      logOpts: { "max-size": "50m", "max-file": "3" },
      // Time for the engine to leave the cluster, seconds.
      stopTimeout: 30,
      destroyGraceSeconds: 30,
    },
    {
      deleteBeforeReplace: true,
      additionalSecretOutputs: ["envs"],
      // One that was found stopped is made anew, so that what depends on it and its gates are too. Docker can't change the
      // mounts of a container, and the plugin does not say so.
      replaceOnChanges: ["mustRun", "mounts"],
      hooks: { beforeCreate: [prepareHook(name, node, container, deployment, { image: args.image, ...args.needs })] },
      ...pulumi.mergeOptions({ provider: node.provider }, opts),
    },
  );
}

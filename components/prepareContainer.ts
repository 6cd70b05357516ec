import * as pulumi from "@pulumi/pulumi";
import { describeRoute } from "./connection";
import type { MemoryDemand } from "./memory";
import type { SparkNode } from "./sparkNode";
import { runStepOnNode } from "./ssh";

const limitSeconds = 120;

/** What a container of the engine needs at the moment it is made. */
export interface Needs {
  /** Name of the image on the node. */
  image: string;
  memory: MemoryDemand;
  /** TCP ports that it will listen on. */
  ports: readonly number[];
}

/**
 * A hook that runs on the node just before a container is made. A run that was killed while Docker made one leaves one that
 * the stack does not know: it is removed, if its label says that it is ours; a stranger of that name is an error. So are a
 * port that is taken, memory that is not there, and an image that somebody removed, since preflight looked.
 *
 * @param name name of the container's resource
 * @param container name of the container on the node
 */
export function prepareHook(
  name: string,
  node: SparkNode,
  container: string,
  deployment: string,
  { image, memory, ports }: Needs,
): pulumi.ResourceHook {
  return new pulumi.ResourceHook(`${name}-prepare`, async () => {
    const args = [container, deployment, image, ...[memory.share, memory.atLeastBytes, ...ports].map(String)];
    const { code, stderr } = await runStepOnNode(
      node.route,
      node.sshOptions,
      { script: "prepare_container.py", args },
      { directory: node.directory, node: node.name, step: `${name}-prepare`, timeoutSeconds: limitSeconds },
    );
    if (code !== 0) {
      const why = stderr.trim() || `no answer within ${limitSeconds} s`;
      throw new Error(`${node.name}, ${describeRoute(node.route)}: ${why}`);
    }
  });
}

import type * as pulumi from "@pulumi/pulumi";
import { z } from "zod";
import { remoteStep, resultOf } from "./remoteStep";
import type { SparkNode } from "./sparkNode";

/** What `fabric-key.sh` prints. An empty key must never get as far as an `authorized_keys`. */
const keySchema = z.object({ publicKey: z.string().regex(/^ssh-ed25519 [A-Za-z0-9+/=]{40,}( .*)?$/) });

/**
 * A node's own key for copies over the fabric.
 *
 * @param step name of the resource
 * @param file name of the key's file in the deployment's folder
 * @param used another value, and it is to be used again: what somebody did to it is mended first
 * @returns the public key; empty where an update leaves the step out: a node that needs it then refuses it
 */
export function fabricKey(
  step: string,
  node: SparkNode,
  file: string,
  used: pulumi.Input<string>,
  opts: pulumi.CustomResourceOptions,
): pulumi.Output<string> {
  const create = { script: "fabric-key.sh", args: [`${node.directory}/${file}`] };
  const key = remoteStep(step, { node, create, triggers: [used], timeoutSeconds: 30 }, opts);
  return resultOf(key, (text) => keySchema.parse(JSON.parse(text)).publicKey).apply((known = "") => known);
}

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import * as pulumi from "@pulumi/pulumi";
import { describeRoute } from "./connection";
import { shellLine } from "./quote";
import type { SparkNode } from "./sparkNode";

const limitMilliseconds = 120_000;

/**
 * A run that was killed while Docker made a container leaves one that the stack does not know. This hook removes it just
 * before the container is made anew, if its label says that it is ours; a stranger of that name is an error.
 *
 * @param name name of the container's resource
 * @param container name of the container on the node
 */
export function leftoverHook(
  name: string,
  node: SparkNode,
  container: string,
  deployment: string,
): pulumi.ResourceHook {
  return new pulumi.ResourceHook(`${name}-leftover`, async () => {
    const { user, host, port } = node.settings;
    const script = shellLine(["bash", `${node.scriptDirectory}/remove-leftover.sh`, container, deployment]);
    try {
      await promisify(execFile)("ssh", [...node.sshOptions, "-p", String(port), "-l", user, "--", host, script], {
        timeout: limitMilliseconds,
      });
    } catch (error) {
      const { stderr = "", message } = error as { stderr?: string; message: string };
      throw new Error(`${node.name}, ${describeRoute(node.route)}: ${stderr.trim() || message}`);
    }
  });
}

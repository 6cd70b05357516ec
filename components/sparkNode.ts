import * as docker from "@pulumi/docker";
import * as pulumi from "@pulumi/pulumi";
import { describeRoute, type Route, sshOptions } from "./connection";
import { nodeDirectory } from "./container";
import type { Preflight } from "./preflight";
import type { MachineFacts } from "./preflight/facts";
import { type Connection, connectionOf, workspace } from "./remoteStep";
import { urlHost } from "./ray";
import type { NodeSettings, Settings } from "./schema";

export interface SparkNodeArgs {
  /** The node, and the one it is reached through. */
  route: Route;
  /** `ssh`: limits and key file of the connections. */
  settings: Pick<Settings, "ssh" | "keepImages">;
  /** Text of the private key; undefined: the agent. */
  privateKey: pulumi.Output<string> | undefined;
  /** Nothing is done on the node before it has passed. */
  preflight: Preflight;
  /** Name of the deployment, which its folder on the node is called by. Letters, digits, `_`, `.` and `-`. */
  deployment: string;
}

/**
 * One Spark: the connection to it, a folder for what the deployment keeps there, the facts of the machine, and a Docker
 * provider over SSH. Destroying it removes the folder, and all that is left of the deployment on the node.
 */
export class SparkNode extends pulumi.ComponentResource {
  readonly settings: NodeSettings;
  readonly route: Route;
  /** Options of the `ssh` program to reach the node. */
  readonly sshOptions: string[];
  /** The node's name in the settings. */
  readonly name: string;
  /** Folder of this deployment on the node, relative to the user's home. */
  readonly directory: string;
  readonly connection: Connection;
  /** Containers on this node are made with this provider. */
  readonly provider: docker.Provider;
  /** What preflight saw of the machine. */
  readonly facts: pulumi.Output<MachineFacts | undefined>;
  /** Steps on the node come after this, and go before it. */
  readonly ready: pulumi.Resource;

  constructor(name: string, args: SparkNodeArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:SparkNode", name, {}, opts);
    const { route, privateKey, preflight, deployment } = args;
    const { ssh, keepImages } = args.settings;
    this.settings = route.node;
    this.route = route;
    this.sshOptions = sshOptions(route, ssh);
    this.name = route.node.name;
    this.directory = nodeDirectory(deployment);
    this.connection = connectionOf(route, ssh, privateKey);

    const after = { parent: this, dependsOn: preflight.passed };
    this.ready = workspace(`${name}-workspace`, this, { deployment, keepImages }, after);
    this.provider = new docker.Provider(
      `${name}-docker`,
      {
        host: `ssh://${this.settings.user}@${urlHost(this.settings.host)}:${this.settings.port}`,
        sshOpts: this.sshOptions,
        // A preview must not need the hosts.
        disableDockerDaemonCheck: true,
      },
      { parent: this },
    );
    this.facts = preflight.factsOf(this.name);
    this.registerOutputs({ facts: this.facts, route: describeRoute(route) });
  }
}

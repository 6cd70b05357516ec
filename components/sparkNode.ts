import * as docker from "@pulumi/docker";
import * as pulumi from "@pulumi/pulumi";
import { describeRoute, type Route, sshOptions } from "./connection";
import { type NodeFacts, parseFacts } from "./facts";
import { type Connection, connectionOf, copyToNode, remoteStep, resultOf, workspace } from "./remoteStep";
import { urlHost } from "./ray";
import type { NodeSettings, Settings } from "./schema";
import { expandHome } from "./settings";

export interface SparkNodeArgs {
  /** The node, and the one it is reached through. */
  route: Route;
  /** Limits and key file of the connections. */
  ssh: Settings["ssh"];
  /** Text of the private key; undefined: the agent. */
  privateKey: pulumi.Output<string> | undefined;
  /** Name of the deployment, which its folder on the node is called by. Letters, digits, `_`, `.` and `-`. */
  deployment: string;
}

/**
 * One Spark: the connection to it, a folder for our scripts, the facts of the machine, a check of its fabric interface,
 * and a Docker provider over SSH. Destroying it removes the folder.
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
  /** Folder of the scripts on the node, relative to the user's home. */
  readonly scriptDirectory: string;
  readonly connection: Connection;
  /** Containers on this node are made with this provider. */
  readonly provider: docker.Provider;
  readonly facts: pulumi.Output<NodeFacts>;
  /** Steps on the node come after this: the scripts are there. */
  readonly ready: pulumi.Resource;
  /** What changes the node comes after this: its fabric interface is as the settings say. */
  readonly checked: pulumi.Resource;

  constructor(name: string, args: SparkNodeArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:SparkNode", name, {}, opts);
    const { route, ssh, privateKey } = args;
    const { fabric } = route.node;
    this.settings = route.node;
    this.route = route;
    this.sshOptions = sshOptions(route, ssh, ssh.privateKeyPath && expandHome(ssh.privateKeyPath));
    this.name = route.node.name;
    this.directory = `.dgx-spark-serving-${args.deployment}`;
    this.scriptDirectory = `${this.directory}/remote`;
    this.connection = connectionOf(route, ssh, privateKey);

    const folder = workspace(`${name}-workspace`, this, { parent: this });
    this.ready = copyToNode(
      `${name}-scripts`,
      { node: this, source: "scripts/remote", remotePath: this.directory },
      { parent: this, dependsOn: folder },
    );
    this.facts = resultOf(
      remoteStep(
        `${name}-facts`,
        { node: this, create: { script: "facts.py", args: [] }, timeoutSeconds: 30 },
        { parent: this },
      ),
      parseFacts,
    );
    this.checked = remoteStep(
      `${name}-fabric`,
      {
        node: this,
        create: { script: "check_fabric.py", args: [fabric.interface, fabric.address, ...fabric.hcas] },
        timeoutSeconds: 30,
      },
      { parent: this },
    );
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
    this.registerOutputs({ facts: this.facts, route: describeRoute(route) });
  }
}

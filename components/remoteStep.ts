import * as command from "@pulumi/command";
import * as pulumi from "@pulumi/pulumi";
import type { Route } from "./connection";
import { shellLine } from "./quote";
import type { NodeSettings, Settings } from "./schema";
import type { SparkNode } from "./sparkNode";

/** How a step reaches its node. Secret as a whole. */
export type Connection = pulumi.Output<command.types.input.remote.ConnectionArgs>;

/** A script under scripts/remote/, with its arguments. */
export interface RemoteCall {
  /** File name, e.g. `pull-image.sh`. */
  script: string;
  args: pulumi.Input<string>[];
}

/** What a step does on its node. */
export interface RemoteStepArgs {
  node: SparkNode;
  /** Runs when the step is made or replaced. Must be safe to repeat and cheap when already true. */
  create: RemoteCall;
  /** Runs when an input changed, the connection included. Default: `create` again. */
  update?: RemoteCall;
  /** Runs when the step goes away. */
  delete?: RemoteCall;
  /** Any change makes the step anew. */
  triggers?: pulumi.Input<unknown>[];
  /** Limit of one run on the node, seconds. */
  timeoutSeconds: number;
}

const interpreters: Readonly<Record<string, string[]>> = { sh: ["bash"], py: ["python3", "-B"] };

/**
 * The shell line of one call. `step.py` bounds it in time, ends it when the connection is gone, and names node and step
 * when it fails.
 *
 * @param at.directory where the scripts were copied to on the node, relative to the user's home
 */
export function callLine(
  call: { script: string; args: readonly string[] },
  at: { directory: string; node: string; step: string; timeoutSeconds: number },
): string {
  const extension = call.script.slice(call.script.lastIndexOf(".") + 1);
  const interpreter = interpreters[extension];
  if (interpreter === undefined) throw new Error(`${call.script}: no interpreter for .${extension}`);
  return shellLine([
    ...["python3", "-B", `${at.directory}/step.py`, at.node, at.step, String(at.timeoutSeconds), "--"],
    ...interpreter,
    `${at.directory}/${call.script}`,
    ...call.args,
  ]);
}

/**
 * A short piece of work on a Spark. Its result is JSON on stdout, its progress is on stderr and streamed to the operator.
 *
 * @param step name of the resource, which is also what a failing step is called on the node
 */
export function remoteStep(
  step: string,
  args: RemoteStepArgs,
  opts: pulumi.CustomResourceOptions,
): command.remote.Command {
  const { node, timeoutSeconds } = args;
  const line = (call: RemoteCall) =>
    pulumi
      .all(call.args)
      .apply((words) =>
        callLine(
          { script: call.script, args: words },
          { directory: node.scriptDirectory, node: node.name, step, timeoutSeconds },
        ),
      );
  return new command.remote.Command(
    step,
    {
      ...common(node),
      create: line(args.create),
      update: line(args.update ?? args.create),
      ...(args.delete && { delete: line(args.delete).apply((text) => onlyIn(node.scriptDirectory, text)) }),
      ...(args.triggers && { triggers: args.triggers }),
    },
    // The node's scripts go last, so that every `delete` still finds its own.
    { deleteBeforeReplace: true, ...pulumi.mergeOptions({ dependsOn: node.ready }, opts) },
  );
}

/** A line that does nothing on a node whose scripts are gone, such as one that was set up anew: else it could never be destroyed. */
function onlyIn(directory: string, line: string): string {
  return shellLine(["sh", "-c", `[ ! -d "$0" ] || { ${line}; }`, directory]);
}

/** The step's result, as its script printed it. */
export function resultOf<T>(
  step: command.remote.Command | command.local.Command,
  parse: (text: string) => T,
): pulumi.Output<T> {
  return step.stdout.apply(parse);
}

/** The deployment's folder on a node: made first, removed last with all that is in it. */
export function workspace(name: string, node: SparkNode, opts: pulumi.CustomResourceOptions): command.remote.Command {
  const make = shellLine(["mkdir", "-p", "-m", "700", node.directory]);
  return new command.remote.Command(
    name,
    { ...common(node), create: make, update: make, delete: shellLine(["rm", "-rf", node.directory]) },
    { deleteBeforeReplace: true, ...opts },
  );
}

/**
 * A short piece of work on the operator's machine, in the program's folder. Its result is JSON on stdout; when it fails,
 * what it said is in the error.
 *
 * @param args.stdin what it reads; any change runs it again
 * @param args.triggers any change makes the step anew
 */
export function operatorStep(
  step: string,
  args: { argv: readonly string[]; stdin: string; triggers?: pulumi.Input<unknown>[] },
  opts: pulumi.CustomResourceOptions,
): command.local.Command {
  const line = shellLine(args.argv);
  return new command.local.Command(
    step,
    {
      create: line,
      update: line,
      stdin: args.stdin,
      ...(args.triggers && { triggers: args.triggers }),
      addPreviousOutputInEnv: false,
      // An error shows it all again.
      logging: command.local.Logging.None,
    },
    opts,
  );
}

export interface CopyArgs {
  node: SparkNode;
  /** File or folder, relative to the program. */
  source: string;
  /** Existing folder on the node, relative to the user's home; the copy goes below it under its own name. */
  remotePath: string;
}

/** Copies a file or folder to a node, again whenever its content changes. */
export function copyToNode(
  name: string,
  { node, source, remotePath }: CopyArgs,
  opts: pulumi.CustomResourceOptions,
): command.remote.CopyToRemote {
  const isFile = /\.[a-z]+$/.test(source);
  return new command.remote.CopyToRemote(
    name,
    {
      connection: node.connection,
      source: isFile ? new pulumi.asset.FileAsset(source) : new pulumi.asset.FileArchive(source),
      remotePath,
    },
    opts,
  );
}

/** What every command has in common. */
function common(node: SparkNode) {
  return {
    connection: node.connection,
    // sshd refuses variables without AcceptEnv, so none are sent.
    addPreviousOutputInEnv: false,
    // stdout is the result, for the program; people read stderr.
    logging: command.remote.Logging.Stderr,
  };
}

/**
 * The connection to a node, as a secret, its host key checked on every hop.
 *
 * @param privateKey text of the key; undefined: the agent
 */
export function connectionOf(
  { node, via }: Route,
  ssh: Settings["ssh"],
  privateKey: pulumi.Output<string> | undefined,
): Connection {
  const hop = ({ host, port, user, hostKey }: NodeSettings) => ({
    host,
    port,
    user,
    hostKey,
    perDialTimeout: ssh.connectTimeoutSeconds,
    // Errors that are borne before the one that counts.
    dialErrorLimit: ssh.connectAttempts - 1,
    ...(privateKey && { privateKey }),
  });
  return pulumi.secret({ ...hop(node), ...(via && { proxy: hop(via) }) });
}

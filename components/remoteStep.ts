import * as command from "@pulumi/command";
import * as pulumi from "@pulumi/pulumi";
import type { Route } from "./connection";
import { shellLine } from "./quote";
import type { NodeSettings, Settings } from "./schema";
import type { SparkNode } from "./sparkNode";
import { stepArguments, type StepPlace, stepProgram } from "./step";

/** How a step reaches its node. Secret as a whole. */
export type Connection = pulumi.Output<command.types.input.remote.ConnectionArgs>;

/** A call as `StepCall` has it, its arguments known later. */
export interface RemoteCall {
  script: string;
  args: pulumi.Input<string>[];
}

/** What a step does on its node. */
export interface RemoteStepArgs {
  node: Pick<SparkNode, "name" | "directory" | "connection" | "ready">;
  /** Runs when the step is made or replaced, and when its arguments change. Safe to repeat and cheap when already true. */
  create: RemoteCall;
  /** Runs when the step goes away. What its arguments come from belongs among the triggers, or a change leaves something. */
  delete?: RemoteCall;
  /** It is cheap when all is as it should be, and every update is to put right what is not. Default: an update tells what is known. */
  repairs?: boolean;
  /** Variables for its script, secret: they go in by stdin, and are in no command line. */
  environment?: pulumi.Input<Record<string, string>>;
  /** Any change makes the step anew. */
  triggers?: pulumi.Input<unknown>[];
  /** Limit of one run on the node, seconds. */
  timeoutSeconds: number;
}

/**
 * A short piece of work on a Spark. Its result is JSON on stdout, its progress is on stderr and streamed to the operator.
 * A new connection, or a change of the script's text, does nothing but tell the result again, unless the step `repairs`; other
 * arguments run it again.
 *
 * @param step name of the resource, which is also what a failing step is called on the node
 */
export function remoteStep(
  step: string,
  args: RemoteStepArgs,
  opts: pulumi.CustomResourceOptions,
): command.remote.Command {
  return stepCommand(step, args, pulumi.mergeOptions({ dependsOn: args.node.ready }, opts));
}

function stepCommand(
  step: string,
  { node, timeoutSeconds, triggers, environment, ...calls }: RemoteStepArgs,
  opts: pulumi.CustomResourceOptions,
  deletion: "delete" | "leave" = "delete",
): command.remote.Command {
  const line = (call: RemoteCall, mode: StepPlace["mode"]) =>
    pulumi
      .all(call.args)
      .apply((args) =>
        shellLine(
          stepArguments(
            { script: call.script, args },
            { directory: node.directory, node: node.name, step, timeoutSeconds, mode },
          ),
        ),
      );
  const scripts = [calls.create.script, ...(calls.delete ? [calls.delete.script] : [])];
  return new command.remote.Command(
    step,
    {
      connection: node.connection,
      create: line(calls.create, "create"),
      update: line(calls.create, calls.repairs ? "create" : "again"),
      ...(calls.delete && { delete: line(calls.delete, deletion) }),
      ...(triggers && { triggers }),
      stdin:
        environment === undefined
          ? stepProgram(scripts)
          : pulumi.secret(pulumi.output(environment).apply((variables) => stepProgram(scripts, variables))),
      // sshd refuses variables without AcceptEnv, so none are sent.
      addPreviousOutputInEnv: false,
      // stdout is the result, for the program; people read stderr.
      logging: command.remote.Logging.Stderr,
    },
    { deleteBeforeReplace: true, ...opts },
  );
}

/** The step's result, as its script printed it. Undefined: an update left the step out (`--target`, `--exclude`). */
export function resultOf<T>(
  step: command.remote.Command | command.local.Command,
  parse: (text: string) => T,
): pulumi.Output<T | undefined> {
  return step.stdout.apply((text: string | undefined) => (text === undefined ? undefined : parse(text)));
}

/** The deployment's folder on a node: made first, removed last with all that is left of the deployment there. */
export function workspace(
  name: string,
  node: SparkNode,
  { deployment, keepImages }: { deployment: string; keepImages: boolean },
  opts: pulumi.CustomResourceOptions,
): command.remote.Command {
  const call = (action: string, ...more: string[]) => ({
    script: "workspace.sh",
    args: [action, node.directory, ...more],
  });
  const remove = call("remove", deployment, keepImages ? "keep" : "remove");
  return stepCommand(name, { node, create: call("make"), delete: remove, timeoutSeconds: 120 }, opts, "leave");
}

/**
 * A short piece of work on the operator's machine, in the program's folder. Its result is JSON on stdout; when it fails,
 * what it said is in the error.
 *
 * @param args.stdin what it reads; any change runs it again
 * @param args.triggers any change makes the step anew
 * @param args.isLong what it says is shown as it comes, and an update does not run it again
 */
export function operatorStep(
  step: string,
  args: { argv: readonly string[]; stdin: string; triggers?: pulumi.Input<unknown>[]; isLong?: boolean },
  opts: pulumi.CustomResourceOptions,
): command.local.Command {
  const line = shellLine(args.argv);
  return new command.local.Command(
    step,
    {
      create: line,
      update: args.isLong ? "true" : line,
      stdin: args.stdin,
      ...(args.triggers && { triggers: args.triggers }),
      addPreviousOutputInEnv: false,
      // An error shows it all again.
      logging: args.isLong ? command.local.Logging.Stderr : command.local.Logging.None,
    },
    opts,
  );
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

import { spawn } from "node:child_process";
import { basename } from "node:path";

import { kill as killAll, labProcesses, signal } from "../processes";
import { PROJECT } from "../project";
import { pulumiEnvironment, unlock } from "../pulumi";
import { attempt, LabError, type RunResult } from "../run";
import { COMMAND_MS, within } from "./tools";

/** How long one may take that is not disturbed. */
export const UNDISTURBED_MS = 600_000;
/** How long one has to end after a SIGINT before it is killed. */
const STOP_MS = 30_000;
/** How long the output of an operation is waited for after its end. */
const REST_MS = 1000;

/** Once aborted, the running operation is interrupted, and none begins any more. */
export const interruption = new AbortController();

/** How a program ended. */
type Exit = number | NodeJS.Signals;

/** A `pulumi` under way, in a session and process group of its own, as on a terminal of its own. */
export interface PulumiRun {
  /** The engine's process; the group and the session have the same number. */
  pid: number;
  /** Undefined as long as it runs. */
  exit: Exit | undefined;
  ended: Promise<Exit>;
  /** All that it has printed so far. */
  output: string;
}

export function start(args: readonly string[]): PulumiRun {
  interruption.signal.throwIfAborted();
  const argv = ["-C", PROJECT, ...args, "--yes", "--skip-preview", "--non-interactive", "--color", "never"];
  const child = spawn("pulumi", argv, {
    env: pulumiEnvironment(),
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
  });
  child.on("error", () => undefined); // it has no number then
  if (child.pid === undefined) throw new LabError("pulumi: cannot be started");
  const { pid } = child;
  const interrupt = (): void => {
    signal(-pid, "SIGINT");
  };
  interruption.signal.addEventListener("abort", interrupt);
  const closed = new Promise<void>((resolve) => {
    child.on("close", () => {
      resolve();
    });
  });
  const ended = new Promise<Exit>((resolve) => {
    child.on("exit", (code, name) => {
      interruption.signal.removeEventListener("abort", interrupt);
      started.exit = code ?? name ?? "SIGKILL";
      // The rest of what it said. A killed engine's plugins hold its output open: they are not waited for.
      void within(closed, REST_MS).then(() => {
        resolve(code ?? name ?? "SIGKILL");
      });
    });
  });
  const started: PulumiRun = { pid, exit: undefined, ended, output: "" };
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => (started.output += text));
  }
  sessions.push(pid);
  return started;
}

/** Sessions whose processes may outlive their engine. */
const sessions: number[] = [];

/** Ends what killed engines have left on this machine; nothing of the lab depends on it. Returns how many there were. */
export async function endSessions(): Promise<number> {
  const left = (await Promise.all(sessions.splice(0).map(members))).flat().map(({ pid }) => pid);
  // A number may be another program's by now.
  const ours = new Set(labProcesses().flatMap(({ pid, owner }) => (owner === "pulumi" ? [pid] : [])));
  const ended = left.filter((pid) => ours.has(pid));
  await killAll(ended);
  return ended.length;
}

/** Ends an operation as a person does that has lost patience. */
export async function stop(operation: PulumiRun): Promise<void> {
  signal(-operation.pid, "SIGINT");
  if (!(await within(operation.ended, STOP_MS))) {
    await killAll((await members(operation.pid)).map(({ pid }) => pid));
    await operation.ended;
  }
}

export interface Member {
  pid: number;
  parent: number;
  /** Name of the program's file. */
  program: string;
}

/** The processes of a session: plugins have groups of their own, and lose their parent when the engine is killed. */
export async function members(session: number): Promise<Member[]> {
  const { stdout } = await attempt(["ps", "-o", "pid=,ppid=,args=", "--sid", String(session)]);
  return stdout.split("\n").flatMap((line) => {
    const [, pid, parent, program] = /^\s*(\d+)\s+(\d+)\s+(\S+)/.exec(line) ?? [];
    return program === undefined ? [] : [{ pid: Number(pid), parent: Number(parent), program: basename(program) }];
  });
}

/** A short Pulumi command on the lab's stack; any exit code is a result. */
export async function command(...args: string[]): Promise<RunResult> {
  interruption.signal.throwIfAborted();
  return await attempt(["pulumi", "-C", PROJECT, ...args], { env: pulumiEnvironment(), timeout: COMMAND_MS });
}

/** One attempt of an operation that nobody disturbs. */
export async function undisturbed(...args: string[]): Promise<PulumiRun & { isStuck: boolean }> {
  await unlock();
  const operation = start(args);
  const isStuck = !(await within(operation.ended, UNDISTURBED_MS));
  if (isStuck) await stop(operation);
  return { ...operation, isStuck };
}

/** What the operation is at, or was last at: the last line about a resource, e.g. "server-gate creating"; "" before the first. */
export function lastStep(output: string): string {
  const lines = output.matchAll(/^ *\S{1,3} +[\w-]+:\S+ (\S+) \**(\w+)/gm);
  const steps = [...lines].filter(([line]) => !line.includes("pulumi:pulumi:Stack"));
  return steps.at(-1)?.slice(1).join(" ") ?? "";
}

/** Whether an `up` says that there was nothing to do. */
export function isUnchanged(output: string): boolean {
  return /^Resources:\n +\d+ unchanged\n(?! +\S)/m.test(output);
}

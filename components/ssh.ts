import { type ChildProcess, type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import * as readline from "node:readline";
import type { Route } from "./connection";
import { shellLine } from "./quote";
import type { NodeSettings } from "./schema";
import { stepArguments, type StepCall, type StepPlace, stepProgram } from "./step";

/** How a program ended. */
export interface Finished {
  /** Null: it was stopped, or never started. Of `ssh`, 255 says that there was no connection. */
  code: number | null;
  stdout: string;
  stderr: string;
}

const running = new Set<ChildProcess>();

/** Ends every `ssh` that was started here: each would outlive this program for as long as the node's shell hangs. */
export function endConnections(): void {
  for (const child of running) child.kill();
}

function noted<Child extends ChildProcess>(child: Child): Child {
  running.add(child);
  return child.on("close", () => running.delete(child));
}

/**
 * Runs a program on a node, by the `ssh` program of this machine; any end of it is a result.
 *
 * @param options `sshOptions` of the route
 * @param argv program and arguments
 * @param limitSeconds limit of it all, seconds
 */
export function runOnNode(
  { node }: Route,
  options: readonly string[],
  argv: readonly string[],
  { input = "", limitSeconds }: { input?: string; limitSeconds: number },
): Promise<Finished> {
  return new Promise((resolve) => {
    const limits = { timeout: limitSeconds * 1000, maxBuffer: 64 * 1024 ** 2 };
    const child = noted(
      execFile("ssh", sshArguments(node, options, argv), limits, (error, stdout, stderr) => {
        if (typeof error?.code === "string") resolve({ code: null, stdout, stderr: error.message });
        else if (error?.signal != null && !error.killed) resolve(endedBy(error.signal, stdout, stderr));
        else resolve({ code: error === null ? 0 : (error.code ?? null), stdout, stderr });
      }),
    );
    // One that ended early does not read.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input);
  });
}

/**
 * Runs a step on a node outside of Pulumi, as a step of the stack would run.
 *
 * @param options `sshOptions` of the route
 */
export function runStepOnNode(
  route: Route,
  options: readonly string[],
  call: StepCall,
  at: Omit<StepPlace, "mode">,
): Promise<Finished> {
  return runOnNode(route, options, stepArguments(call, { ...at, mode: "create" }), {
    input: stepProgram([call.script]),
    // The step ends by itself before.
    limitSeconds: at.timeoutSeconds + 30,
  });
}

function sshArguments(node: NodeSettings, options: readonly string[], argv: readonly string[]): string[] {
  return [...options, "-p", String(node.port), "-l", node.user, "--", node.host, shellLine(argv)];
}

/** Of an `ssh` that somebody else ended. */
function endedBy(signal: NodeJS.Signals, stdout: string, stderr: string): Finished {
  return { code: null, stdout, stderr: `${stderr}\nssh was ended by ${signal}` };
}

/** A program on a node that answers every line with a line. */
export class Session {
  /** How it ended, or that it did not answer in time. Its output is what was printed and is no answer. */
  readonly finished: Promise<Finished>;
  private readonly child: ChildProcessWithoutNullStreams;
  private readonly output = { stdout: "", stderr: "" };
  private finish: (how: Finished) => void = () => undefined;
  private isAnswer: (line: string) => boolean = () => false;

  /** Like `runOnNode`, each question with a limit of its own. */
  constructor({ node }: Route, options: readonly string[], argv: readonly string[]) {
    this.child = noted(spawn("ssh", sshArguments(node, options, argv)));
    const { stdin, stdout, stderr } = this.child;
    readline.createInterface({ input: stdout }).on("line", (line) => {
      if (!this.isAnswer(line)) this.output.stdout += `${line}\n`;
    });
    stderr.on("data", (chunk: Buffer) => (this.output.stderr += chunk.toString()));
    // One that ended early does not read.
    stdin.on("error", () => undefined);
    this.finished = new Promise((resolve) => {
      this.finish = resolve;
    });
    this.child.on("error", ({ message }) => {
      this.finish({ code: null, stdout: "", stderr: message });
    });
    this.child.on("close", (code, signal) => {
      const { stdout, stderr } = this.output;
      this.finish(signal === null ? { code, stdout, stderr } : endedBy(signal, stdout, stderr));
    });
  }

  /** What it printed so far that is no answer: a shell that greets people does so here too. */
  get noise(): string {
    return this.output.stdout;
  }

  /**
   * The answer to a line.
   *
   * @param read makes an answer of a line; undefined: it is none
   * @returns undefined: there is none, and `finished` says why. It is not to be asked again then, but lasts until `close`:
   *   others may share its connection
   */
  ask<T>(line: string, read: (line: string) => T | undefined, limitSeconds: number): Promise<T | undefined> {
    const limit = setTimeout(() => {
      const { stdout, stderr } = this.output;
      this.finish({ code: null, stdout, stderr: `${stderr}\nno answer within ${limitSeconds} s` });
    }, limitSeconds * 1000);
    return new Promise<T | undefined>((resolve) => {
      this.isAnswer = (said) => {
        const answer = read(said);
        if (answer !== undefined) resolve(answer);
        return answer !== undefined;
      };
      void this.finished.then(() => {
        resolve(undefined);
      });
      this.child.stdin.write(`${line}\n`);
    }).finally(() => {
      clearTimeout(limit);
    });
  }

  /** Ends it, whatever it does; the program on the node sees the end of its input. */
  close(): void {
    this.child.kill();
    // What `ssh` itself started may hold them open.
    this.child.stdout.destroy();
    this.child.stderr.destroy();
  }
}

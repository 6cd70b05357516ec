import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import * as readline from "node:readline";
import type { Route } from "./connection";
import { shellLine } from "./quote";
import type { NodeSettings } from "./schema";

/** How a program ended. */
export interface Finished {
  /** Null: it was stopped, or never started. Of `ssh`, 255 says that there was no connection. */
  code: number | null;
  stdout: string;
  stderr: string;
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
    const child = execFile("ssh", sshArguments(node, options, argv), limits, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === "number" ? error.code : null;
      resolve({ code, stdout, stderr });
    });
    // One that ended early does not read.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(input);
  });
}

function sshArguments(node: NodeSettings, options: readonly string[], argv: readonly string[]): string[] {
  return [...options, "-p", String(node.port), "-l", node.user, "--", node.host, shellLine(argv)];
}

/** A program on a node that answers every line with a line. */
export class Session {
  /** How it ended, which `close` brings about. */
  readonly finished: Promise<Finished>;
  private readonly child: ChildProcessWithoutNullStreams;
  private readonly answers: AsyncIterator<string>;

  /** Like `runOnNode`, the limit being that of all that is asked. */
  constructor({ node }: Route, options: readonly string[], argv: readonly string[], limitSeconds: number) {
    this.child = spawn("ssh", sshArguments(node, options, argv), { timeout: limitSeconds * 1000 });
    this.answers = readline.createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
    let stderr = "";
    this.child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
    // One that ended early does not read.
    this.child.stdin.on("error", () => undefined);
    this.finished = new Promise((resolve) => {
      this.child.on("error", ({ message }) => {
        resolve({ code: null, stdout: "", stderr: message });
      });
      this.child.on("close", (code) => {
        resolve({ code, stdout: "", stderr });
      });
    });
  }

  /** The answer to a line; undefined: the program has ended, and `finished` says how. */
  async ask(line: string): Promise<string | undefined> {
    this.child.stdin.write(`${line}\n`);
    const answer = await this.answers.next();
    return answer.done === true ? undefined : answer.value;
  }

  close(): void {
    this.child.stdin.end();
  }
}

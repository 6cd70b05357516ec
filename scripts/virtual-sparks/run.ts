import { spawn } from "node:child_process";
import { createWriteStream, readFileSync } from "node:fs";

/** A mistake or a state that the person can mend: told without a stack trace. */
export class LabError extends Error {}

/** A program that ended with another code than 0. */
export class CommandError extends LabError {
  constructor(
    readonly argv: readonly string[],
    readonly code: number,
    output: string,
  ) {
    super(`${argv.join(" ")}: exit code ${code}${output.trim() === "" ? "" : `\n${output.trim()}`}`);
  }
}

/** How to run a program; everything has a default. */
export interface RunOptions {
  /** Replaces this process's environment. */
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Sent as standard input, which is otherwise empty. */
  input?: string;
  /** A file that gets stdout and stderr, appended; the result's are then empty. */
  log?: string;
  /** Milliseconds until SIGKILL; default none. */
  timeout?: number;
}

/** What a program left. */
export interface RunResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs a program to its end, without a shell. Any exit code is a result; a program that cannot be started throws. */
export async function attempt(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const [program = "", ...args] = argv;
  const log = options.log === undefined ? undefined : createWriteStream(options.log, { flags: "a" });
  const child = spawn(program, args, {
    ...(options.env && { env: options.env }),
    ...(options.cwd !== undefined && { cwd: options.cwd }),
    ...(options.timeout !== undefined && { timeout: options.timeout, killSignal: "SIGKILL" }),
    stdio: "pipe",
  });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8");
    child[name].on("data", (text: string) => {
      if (log) log.write(text);
      else output[name] += text;
    });
  }
  child.stdin.on("error", () => undefined); // the program may end without reading it
  child.stdin.end(options.input ?? "");
  const code = await new Promise<number>((resolve, reject) => {
    child.on("error", (error) => {
      reject(new LabError(`${program}: cannot be started: ${error.message}`));
    });
    child.on("exit", (exit) => {
      if (exit !== null) return;
      // Killed: what it had started may hold its output open for ever.
      child.stdout.destroy();
      child.stderr.destroy();
    });
    child.on("close", (exit) => {
      resolve(exit ?? 137);
    });
  });
  if (log) await new Promise((resolve) => log.end(resolve));
  return { code, ...output };
}

/** Runs a program that has to succeed and returns its stdout. */
export async function run(argv: readonly string[], options: RunOptions = {}): Promise<string> {
  const { code, stdout, stderr } = await attempt(argv, options);
  if (code !== 0)
    throw new CommandError(argv, code, options.log === undefined ? stdout + stderr : lastLines(options.log));
  return stdout;
}

/** What a program that was started has printed; it has to succeed, or this throws all that it said. */
export async function must(running: Promise<RunResult>, what = "a program"): Promise<string> {
  const { code, stdout, stderr } = await running;
  if (code !== 0) throw new LabError(`${what}: exit code ${code}\n${stdout}${stderr}`);
  return stdout;
}

/** Runs a program on this terminal and returns its exit code; a signal's is 128 + its number. */
export async function passThrough(
  argv: readonly string[],
  options: Pick<RunOptions, "env" | "cwd"> = {},
): Promise<number> {
  const [program = "", ...args] = argv;
  // Ctrl-C reaches the program by the terminal; it decides what to do, and this process waits for it.
  const ignore = (): void => undefined;
  process.on("SIGINT", ignore);
  const child = spawn(program, args, { stdio: "inherit", ...options });
  const forward = (signal: NodeJS.Signals): void => {
    child.kill(signal);
  };
  process.on("SIGTERM", forward);
  return await new Promise<number>((resolve, reject) => {
    child.on("error", (error) => {
      reject(new LabError(`${program}: cannot be started: ${error.message}`));
    });
    child.on("close", (code, signal) => {
      process.off("SIGINT", ignore);
      process.off("SIGTERM", forward);
      resolve(code ?? (signal === "SIGINT" ? 130 : signal === "SIGTERM" ? 143 : 137));
    });
  });
}

const CONTAINED = [
  ...["setpriv", "--pdeathsig", "KILL"],
  ...["unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child"],
];

/**
 * Runs a program on this terminal in mount and PID namespaces of its own, and returns its exit code. Nothing that it mounts
 * or starts outlives it, nor this process, however that ends. Needs root.
 */
export async function runContained(argv: readonly string[]): Promise<number> {
  const [program = "", ...args] = [...CONTAINED, ...argv];
  const child = spawn(program, args, { stdio: ["ignore", "inherit", "inherit"] });
  return await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => {
      resolve(code ?? 137);
    });
  });
}

/** The end of a log file. */
export function lastLines(file: string, count = 20): string {
  try {
    return `${readFileSync(file, "utf8").trimEnd().split("\n").slice(-count).join("\n")}\n(whole log: ${file})`;
  } catch {
    return `(no log at ${file})`;
  }
}

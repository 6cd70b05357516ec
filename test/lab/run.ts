import { attempt, type RunResult } from "../../scripts/virtual-sparks/run";

/** All that `./scripts/lab` has printed. */
export const transcript: string[] = [];

/** `./scripts/lab` with these arguments; any exit code is a result. */
export async function lab(...args: string[]): Promise<RunResult> {
  const result = await attempt(["./scripts/lab", ...args]);
  // What is asked for in clear is no leak.
  if (!args.includes("--show-secrets")) transcript.push(result.stdout, result.stderr);
  return result;
}

/** Runs a program that has to succeed; shows all it said if it doesn't. */
export async function must(run: Promise<RunResult>): Promise<string> {
  const { code, stdout, stderr } = await run;
  if (code !== 0) throw new Error(`exit code ${code}\n${stdout}\n${stderr}`);
  return stdout;
}

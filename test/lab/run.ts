import { attempt, type RunResult } from "../../scripts/virtual-sparks/run";

/** `./scripts/lab` with these arguments; any exit code is a result. */
export const lab = (...args: string[]) => attempt(["./scripts/lab", ...args]);

/** Runs a program that has to succeed; shows all it said if it doesn't. */
export async function must(run: Promise<RunResult>): Promise<string> {
  const { code, stdout, stderr } = await run;
  if (code !== 0) throw new Error(`exit code ${code}\n${stdout}\n${stderr}`);
  return stdout;
}

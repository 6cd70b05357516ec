import * as fs from "node:fs";
import { parse } from "yaml";
import { PROJECT } from "../../scripts/virtual-sparks/project";
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

/** The lab's settings as they are in its file, their keys without the project; secrets are left out. */
export function labSettings(): Record<string, unknown> {
  const { config } = parse(fs.readFileSync(`${PROJECT}/Pulumi.lab.yaml`, "utf8")) as { config: object };
  const settings: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(config)) settings[key.replace("dgx-spark-serving:", "")] = value;
  delete settings["huggingFaceToken"];
  return { ...settings, server: { ...(settings["server"] as object), environment: {} } };
}

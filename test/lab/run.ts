import * as fs from "node:fs";
import { parse } from "yaml";
import { pulumiEnvironment } from "../../scripts/virtual-sparks/pulumi";
import { PROJECT } from "../../scripts/virtual-sparks/project";
import { attempt, type RunResult } from "../../scripts/virtual-sparks/run";

export { must } from "../../scripts/virtual-sparks/run";

/** All that `./scripts/lab` has printed. */
export const transcript: string[] = [];

/** `./scripts/lab` with these arguments; any exit code is a result. */
export async function lab(...args: string[]): Promise<RunResult> {
  const result = await attempt(["./scripts/lab", ...args]);
  // What is asked for in clear is no leak.
  if (!args.includes("--show-secrets")) transcript.push(result.stdout, result.stderr);
  return result;
}

/** `pulumi` for the project in this folder, with the lab's states and passphrase. */
export const pulumiIn =
  (folder: string) =>
  (...args: string[]): Promise<RunResult> =>
    attempt(["pulumi", "-C", folder, ...args], { env: pulumiEnvironment() });

/** The file of the stack's settings. */
export const stackFile = `${PROJECT}/Pulumi.lab.yaml`;

/** The settings in it, as they stand there, their keys without the project. */
export function configuration(): Record<string, unknown> {
  const { config } = parse(fs.readFileSync(stackFile, "utf8")) as { config: object };
  const settings: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(config)) settings[key.replace("dgx-spark-serving:", "")] = value;
  return settings;
}

/** The same without secrets, which are closed there. */
export function labSettings(): Record<string, unknown> {
  const settings = configuration();
  delete settings["huggingFaceToken"];
  delete settings["registryPassword"];
  return { ...settings, server: { ...(settings["server"] as object), environment: {} } };
}

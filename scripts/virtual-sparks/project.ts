import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { parse, stringify } from "yaml";
import { z } from "zod";

import { hostKey, operatorKey } from "./keys";
import { nodeSetting } from "./node-files";
import { REPOSITORY, STATE } from "./paths";
import type { Node } from "./topology";

/** The stack of the lab. */
export const STACK = "lab";

/** The Pulumi project that the lab works in: the repository's program, with this machine's settings. */
export const PROJECT = join(STATE, "project");

const NAMESPACE = "dgx-spark-serving";
/** The stack's settings: committed in the repository, and in the project with this machine's. */
const STACK_FILE = `Pulumi.${STACK}.yaml`;
export const PROJECT_STACK_FILE = join(PROJECT, STACK_FILE);
/** The committed settings that the project's were made from: tells the person's changes from the repository's. */
const BASE_FILE = join(PROJECT, "committed-settings.yaml");

/** A stack's settings, by key. */
export type Settings = Record<string, unknown>;

const stackFileSchema = z.looseObject({ config: z.record(z.string(), z.unknown()).default({}) });
type StackFile = z.infer<typeof stackFileSchema>;

/** Writes the project, or brings it up to date with the repository and the nodes; the person's own settings stay. */
export async function writeProject(nodes: Node[], image: string): Promise<void> {
  mkdirSync(PROJECT, { recursive: true });
  const project = z.looseObject({}).parse(parse(readFileSync(join(REPOSITORY, "Pulumi.yaml"), "utf8")));
  writeChanged(join(PROJECT, "Pulumi.yaml"), stringify({ ...project, main: REPOSITORY }));

  const committed = readStackFile(join(REPOSITORY, STACK_FILE)) ?? { config: {} };
  const base = readStackFile(BASE_FILE) ?? { config: {} };
  const current = readStackFile(PROJECT_STACK_FILE) ?? { config: {} };
  const config = mergeSettings(current.config, base.config, committed.config, await machineSettings(nodes, image));
  writeChanged(PROJECT_STACK_FILE, stringify({ ...current, config }));
  writeChanged(BASE_FILE, stringify(committed));
}

/**
 * The settings to use: what is there now; over it, each key that the repository changed since `base` was taken; over all,
 * the machine's own. Of a map that the machine gives in part, the other parts stay.
 */
export function mergeSettings(current: Settings, base: Settings, committed: Settings, machine: Settings): Settings {
  const merged = { ...current };
  for (const key of new Set([...Object.keys(base), ...Object.keys(committed)])) {
    if (isDeepStrictEqual(base[key], committed[key])) continue;
    if (key in committed) merged[key] = committed[key];
    else Reflect.deleteProperty(merged, key);
  }
  for (const [key, value] of Object.entries(machine)) {
    const present = merged[key];
    merged[key] = isMap(present) && isMap(value) ? { ...present, ...value } : value;
  }
  return merged;
}

/** The settings that only this machine knows. */
async function machineSettings(nodes: Node[], image: string): Promise<Settings> {
  const [head] = nodes;
  if (!head) return {};
  const keys = await Promise.all(nodes.map(({ name }) => hostKey(name, "ecdsa")));
  return {
    [`${NAMESPACE}:nodes`]: nodes.map((node, index) => nodeSetting(node, head, keys[index]?.publicText ?? "")),
    [`${NAMESPACE}:image`]: image,
    [`${NAMESPACE}:ssh`]: { privateKeyPath: (await operatorKey()).path },
  };
}

/** A stack's file; undefined where there is none. */
export function readStackFile(path: string): StackFile | undefined {
  return existsSync(path) ? stackFileSchema.parse(parse(readFileSync(path, "utf8")) ?? {}) : undefined;
}

function writeChanged(path: string, text: string): void {
  if (!existsSync(path) || readFileSync(path, "utf8") !== text) writeFileSync(path, text);
}

function isMap(value: unknown): value is Settings {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

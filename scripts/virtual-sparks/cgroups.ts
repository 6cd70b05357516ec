import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

import { labProcesses } from "./processes";
import { LabError } from "./run";
import { PREFIX } from "./topology";

const MOUNT = "/sys/fs/cgroup";

/** The lab's control groups: one in a unified hierarchy, one in each of the old ones. */
export function cgroups(): string[] {
  return [MOUNT, ...directories(MOUNT)].flatMap((hierarchy) =>
    directories(hierarchy).filter((path) => path === join(hierarchy, PREFIX)),
  );
}

/**
 * Limits how much of this machine's cores each node uses, its containers included, until the lab's Sparks are switched off.
 *
 * @param cores 0.2: a fifth of one; undefined: no limit
 */
export function limitCpus(nodes: readonly string[], cores: number | undefined): void {
  const hierarchy = join(MOUNT, "cpu");
  if (!existsSync(hierarchy))
    throw new LabError(`This machine has no ${hierarchy}: only cgroups of version 1 are known`);
  for (const node of nodes) mkdirSync(join(hierarchy, PREFIX, node), { recursive: true });
  for (const { pid, owner } of labProcesses()) if (nodes.includes(owner)) moveInto(join(hierarchy, PREFIX, owner), pid);
  for (const node of nodes) {
    const group = join(hierarchy, PREFIX, node);
    const period = Number(readFileSync(join(group, "cpu.cfs_period_us"), "utf8"));
    writeFileSync(join(group, "cpu.cfs_quota_us"), cores === undefined ? "-1" : String(Math.round(cores * period)));
  }
}

/** Puts a process into a node's group; a container's stays in Docker's group for it, which is below. */
function moveInto(group: string, pid: number): void {
  try {
    const isBelow = readFileSync(`/proc/${pid}/cgroup`, "utf8").includes(`/${PREFIX}/${basename(group)}/`);
    if (!isBelow) writeFileSync(join(group, "cgroup.procs"), String(pid));
  } catch (error) {
    const endedMeanwhile = ["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "");
    if (!endedMeanwhile) throw error;
  }
}

/** Removes the lab's control groups, deepest first; one that still holds a process stays. */
export function removeCgroups(): void {
  cgroups().forEach(removeTree);
}

function removeTree(path: string): void {
  directories(path).forEach(removeTree);
  try {
    rmdirSync(path);
  } catch {
    // in use: it shows among the leftovers
  }
}

function directories(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(path, entry.name));
  } catch {
    return [];
  }
}

import { readdirSync, rmdirSync } from "node:fs";
import { join } from "node:path";

import { PREFIX } from "./topology";

const MOUNT = "/sys/fs/cgroup";

/** The lab's control groups: one in a unified hierarchy, one in each of the old ones. */
export function cgroups(): string[] {
  return [MOUNT, ...directories(MOUNT)].flatMap((hierarchy) =>
    directories(hierarchy).filter((path) => path === join(hierarchy, PREFIX)),
  );
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

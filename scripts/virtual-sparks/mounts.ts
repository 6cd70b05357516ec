import { readFileSync } from "node:fs";

import { STATE } from "./paths";
import { attempt } from "./run";

/** Mount points of this machine inside the lab's state, deepest first. Nodes mount in namespaces of their own: none is expected. */
export function labMounts(): string[] {
  return readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "")
    .filter((path) => path === STATE || path.startsWith(`${STATE}/`))
    .reverse();
}

/** Loop devices over files of the lab; the kernel frees each with the last mount of it. */
export async function loopDevices(): Promise<string[]> {
  const { stdout } = await attempt(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"]);
  return stdout.split("\n").filter((line) => line.includes(`${STATE}/`));
}

import { type StdioOptions, spawn } from "node:child_process";
import { openSync, readdirSync, readFileSync } from "node:fs";

import { STATE } from "./paths";

/** A process of the lab, recognised by what it is, not by a note of its number that may be stale. */
export interface LabProcess {
  pid: number;
  /** What it belongs to: a node's name, "registry" or "pulumi". */
  owner: string;
  /** Whether it is a node's first process. */
  isInit: boolean;
  /** Its command line, words joined by blanks. */
  command: string;
}

/** The registry's configuration; its process is found by it. */
export const REGISTRY_CONFIG = `${STATE}/registry.yml`;

/** Where Pulumi keeps the lab's stack; Pulumi's processes are found by it. */
export const BACKEND_URL = `file://${STATE}/pulumi`;

const NODE_ROOT = /dgx-spark-lab\/nodes\/([^/ ]+)\/root[/ ]/;

/** Every process of the lab on this machine, other than this one and its ancestors. */
export function labProcesses(): LabProcess[] {
  const own = ancestors(process.pid);
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => pid > 0 && !own.has(pid))
    .flatMap((pid) => recognise(pid) ?? []);
}

/** The first process of a node, as this machine numbers it; undefined when the node is off. */
export function initOf(node: string): number | undefined {
  return labProcesses().find(({ owner, isInit }) => isInit && owner === node)?.pid;
}

/** Kills processes with SIGKILL and waits up to 10 s until they are gone. */
export async function kill(pids: number[]): Promise<void> {
  pids.forEach((pid) => {
    signal(pid, "SIGKILL");
  });
  await gone(pids, 10_000);
}

/** Waits until the processes are gone; false when one outlives the time (milliseconds). */
export async function gone(pids: number[], timeout: number): Promise<boolean> {
  const end = performance.now() + timeout;
  while (pids.some(isAlive)) {
    if (performance.now() > end) return false;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  return true;
}

/** Sends a signal; a process that is gone is no error. */
export function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Starts a process that outlives this one and holds none of its files; its output is appended to `log`. */
export function startDetached(argv: readonly string[], log: string): void {
  const [program = "", ...args] = argv;
  const output = openSync(log, "a", 0o600);
  const stdio: StdioOptions = ["ignore", output, output];
  const child = spawn(program, args, { detached: true, stdio, cwd: "/", env: { PATH: process.env.PATH ?? "" } });
  child.on("error", () => undefined); // whoever waits for the service reports that it does not come
  child.unref();
}

function recognise(pid: number): LabProcess | undefined {
  const command = read(pid, "cmdline").split("\0").join(" ").trim();
  if (command.includes(REGISTRY_CONFIG)) return { pid, owner: "registry", isInit: false, command };
  if (read(pid, "environ").includes(`PULUMI_BACKEND_URL=${BACKEND_URL}\0`)) {
    return { pid, owner: "pulumi", isInit: false, command };
  }
  const node = NODE_ROOT.exec(read(pid, "mountinfo"))?.[1];
  if (node === undefined) return undefined;
  const isInit = /^NSpid:\t\d+\t1$/m.test(read(pid, "status"));
  return { pid, owner: node, isInit, command };
}

function ancestors(pid: number): Set<number> {
  const found = new Set<number>();
  for (let next = pid; next > 0; next = Number(/^PPid:\t(\d+)$/m.exec(read(next, "status"))?.[1] ?? 0)) found.add(next);
  return found;
}

function isAlive(pid: number): boolean {
  const state = /^State:\t(\w)/m.exec(read(pid, "status"))?.[1];
  return state !== undefined && state !== "Z" && state !== "X";
}

function read(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    return ""; // it ended meanwhile
  }
}

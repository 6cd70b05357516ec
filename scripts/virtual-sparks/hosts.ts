import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";

import { operatorKey, writeSshConfig } from "./keys";
import { removeNamespace } from "./network";
import { prepareDisk } from "./node-disk";
import { nodeDirectory, STATE } from "./paths";
import { gone, initOf, kill, signal, startDetached } from "./processes";
import { attempt, lastLines, LabError, type RunOptions, type RunResult } from "./run";
import { type Node, topology } from "./topology";
import { answersOk, until } from "./wait";

const SSH_PORT = 22;
const READY_MS = 60_000;
/** What a node that was on already gets before it is taken for broken. */
const ADOPT_MS = 15_000;
const SHUTDOWN_MS = 30_000;

/** The nodes that the lab has, on or off, head first. */
export function knownNodes(): Node[] {
  const directory = join(STATE, "nodes");
  const names = existsSync(directory) ? readdirSync(directory) : [];
  const numbers = names.map((name) => Number(name.replace(/^spark-/, ""))).filter(Number.isInteger);
  return numbers.length === 0 ? [] : topology(Math.max(...numbers));
}

/** Starts the nodes that are off and waits until all answer; the network has to be there. `model` is its directory here. */
export async function startHosts(nodes: Node[], model: string): Promise<void> {
  await operatorKey(); // once, before all nodes ask for it
  await Promise.all(nodes.map((node) => prepareDisk(node, model)));
  await writeSshConfig(nodes);
  await Promise.all(nodes.map(boot));
}

/** Switches a node on and waits until sshd and dockerd answer. One that is on and well is left alone, a broken one restarted. */
export async function boot(node: Node): Promise<void> {
  if (initOf(node.name) !== undefined) {
    if (await until(() => isReady(node), ADOPT_MS, 100)) return;
    await powerCut(node);
  }
  const directory = nodeDirectory(node.name);
  const log = join(directory, "console.log");
  const namespaces = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"];
  // Not `ip netns exec`: it mounts a /sys without the control groups that dockerd needs.
  const enter = ["nsenter", `--net=/run/netns/${node.namespace}`, ...namespaces];
  startDetached([...enter, "/bin/bash", join(__dirname, "node/boot.sh"), node.name, directory], log);
  if (!(await until(() => isReady(node), READY_MS, 100))) {
    const dockerLog = join(directory, "root/var/log/dockerd.log");
    const states = Object.entries(await health(node)).map(([name, good]) => `${name} ${good ? "up" : "down"}`);
    throw new LabError(
      `${node.name} is not ready after ${READY_MS / 1000} s: ${states.join(", ")}\n${lastLines(log)}\n${lastLines(dockerLog)}`,
    );
  }
}

/** Which of a node's parts answer. */
export interface Health {
  init: boolean;
  sshd: boolean;
  dockerd: boolean;
}

/** Looks at a node from this machine, without SSH. */
export async function health(node: Node): Promise<Health> {
  const init = initOf(node.name);
  if (init === undefined) return { init: false, sshd: false, dockerd: false };
  const dockerd = await dockerAnswers(`/proc/${init}/root/run/docker.sock`);
  return { init: true, sshd: isListening(init, SSH_PORT), dockerd };
}

async function isReady(node: Node): Promise<boolean> {
  const { init, sshd, dockerd } = await health(node);
  return init && sshd && dockerd;
}

/** Runs a program as root inside a node, as at its console; any exit code is a result. Throws when the node is off. */
export async function execOn(node: Node, argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const init = initOf(node.name);
  if (init === undefined) throw new LabError(`${node.name} is off`);
  const enter = ["nsenter", `--target=${init}`, "--mount", "--uts", "--ipc", "--net", "--pid", "--root"];
  const environment = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"];
  return await attempt([...enter, ...environment, ...argv], options);
}

/** Stops a node as `poweroff` does: containers first, then everything; 30 seconds at most, then as a power cut. */
export async function shutDown(node: Node): Promise<void> {
  const init = initOf(node.name);
  if (init === undefined) return;
  signal(init, "SIGTERM");
  if (!(await gone([init], SHUTDOWN_MS))) await kill([init]);
}

/** Stops a node as pulling its plug does: every process at once, files as they are. */
export async function powerCut(node: Node): Promise<void> {
  const init = initOf(node.name);
  if (init !== undefined) await kill([init]);
}

/** Stops a node cleanly and starts it again; containers come back by their restart policy. */
export async function reboot(node: Node): Promise<void> {
  await shutDown(node);
  await boot(node);
}

/** Takes a node out of the lab for good, with its network and disk. */
export async function discard(node: Node): Promise<void> {
  await powerCut(node);
  await removeNamespace(node.namespace);
  rmSync(nodeDirectory(node.name), { recursive: true, force: true });
}

/** Whether something listens on a TCP port in the network of a process; asked of the kernel, so no one is disturbed. */
function isListening(pid: number, port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const listen = "0A";
  try {
    const sockets = readFileSync(`/proc/${pid}/net/tcp`, "utf8").split("\n");
    return sockets
      .map((line) => line.trim().split(/\s+/))
      .some(([, at, , state]) => at?.endsWith(local) && state === listen);
  } catch {
    return false; // the process ended meanwhile
  }
}

async function dockerAnswers(socketPath: string): Promise<boolean> {
  return await answersOk({ socketPath, path: "/_ping" });
}

/** The directory that holds the lab, private to root. */
export function makeState(): void {
  mkdirSync(STATE, { recursive: true, mode: 0o700 });
}

import { existsSync, rmSync } from "node:fs";

import { artifacts, isBuilt } from "./artifacts";
import { cgroups, removeCgroups } from "./cgroups";
import { discard, knownNodes, makeState, shutDown, startHosts } from "./hosts";
import { IMAGE_REPOSITORY } from "./image/build";
import { labMounts, loopDevices } from "./mounts";
import { makeNetwork, networkLeftovers, removeNetwork } from "./network";
import { STATE } from "./paths";
import { checkMachine } from "./preflight";
import { kill, labProcesses } from "./processes";
import { step } from "./progress";
import { writeProject } from "./project";
import { startRegistry } from "./registry";
import { LabError } from "./run";
import { type Node, REGISTRY, topology } from "./topology";
import { until } from "./wait";

const DEFAULT_NODES = 2;

/** Makes or mends network, registry, nodes and the Pulumi project; what is well is left alone. `count` defaults to the nodes there are, or 2. */
export async function hostsUp(count?: number): Promise<Node[]> {
  const nodes = topology(count ?? (knownNodes().length || DEFAULT_NODES));
  await checkMachine(nodes, isBuilt());
  const made = await artifacts();
  await step(`${nodes.length} virtual Sparks`, async () => {
    makeState();
    await makeNetwork(nodes);
    await startRegistry(made.registryStorage, IMAGE_REPOSITORY, made.digest);
    await startHosts(nodes, made.model);
  });
  await writeProject(nodes, `${REGISTRY.host}/${IMAGE_REPOSITORY}@${made.digest}`);
  return nodes;
}

/** Takes nodes out that a smaller lab no longer has; the program must have let go of them before. */
export async function removeSurplus(nodes: Node[]): Promise<void> {
  const wanted = new Set(nodes.map(({ name }) => name));
  for (const node of knownNodes()) if (!wanted.has(node.name)) await discard(node);
}

/** Switches the Sparks off cleanly, and takes network and registry away; their disks and the stack stay for the next start. */
export async function hostsDown(): Promise<void> {
  await Promise.all(knownNodes().map(shutDown));
  await stopEverything();
}

/** Removes the lab, in whatever state it is, and throws when something stays. */
export async function down(): Promise<void> {
  await stopEverything();
  rmSync(STATE, { recursive: true, force: true }); // last: as long as it is there, the lab is not gone
  // Mounts and loop devices go a moment after the last process of a node.
  let left: string[] = [];
  await until(async () => (left = await leftovers()).length === 0, 5000);
  if (left.length > 0) throw new LabError(`The lab is not gone:\n${left.map((line) => `  ${line}`).join("\n")}`);
}

async function stopEverything(): Promise<void> {
  await until(async () => {
    const running = labProcesses().map(({ pid }) => pid);
    await kill(running);
    return labProcesses().length === 0;
  }, 15_000);
  await until(() => {
    removeCgroups();
    return cgroups().length === 0;
  }, 5000);
  await removeNetwork();
}

/** Everything of the lab on this machine, in words; empty when nothing is there. The cache does not count. */
export async function leftovers(): Promise<string[]> {
  return [
    ...labProcesses().map(({ pid, owner, command }) => `process ${pid} of ${owner}: ${command.slice(0, 100)}`),
    ...(await networkLeftovers()),
    ...cgroups().map((path) => `control group ${path}`),
    ...(await loopDevices()).map((device) => `loop device ${device}`),
    ...labMounts().map((path) => `mount ${path}`),
    ...(existsSync(STATE) ? [`directory ${STATE}`] : []),
  ];
}

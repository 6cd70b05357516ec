import { attempt, run } from "./run";
import { FABRIC, MANAGEMENT, type Node, OPERATOR, PREFIX, SWITCH_NAMESPACE } from "./topology";

/** Marks the lab's routes of this machine, so that only these are removed. */
export const ROUTE_PROTOCOL = "213";

/** Makes what is missing of the network; what is there is left as it is. */
export async function makeNetwork(nodes: Node[]): Promise<void> {
  const present = new Set(await namespaces());
  for (const name of [SWITCH_NAMESPACE, ...nodes.map((node) => node.namespace)]) {
    // A name may be left of an interrupted run, without a namespace behind it.
    if (present.has(name) && !(await linkExists(name, "lo"))) await removeNamespace(name);
    if (!(await linkExists(name, "lo"))) await run(["ip", "netns", "add", name]);
    await ip(name, "link set lo up");
  }
  if (!(await linkExists(SWITCH_NAMESPACE, "fabric"))) {
    await ip(SWITCH_NAMESPACE, `link add fabric mtu ${FABRIC.mtu} type bridge`);
    await ip(SWITCH_NAMESPACE, "link set fabric up");
  }
  for (const node of nodes) await plugIntoFabric(node);
  const head = nodes[0];
  if (head) await linkToOperator(head);
  // The operator must not reach the fabric, and must not look for it in the world outside either.
  await run(["ip", "route", "replace", "unreachable", FABRIC.network, "proto", ROUTE_PROTOCOL]);
}

async function plugIntoFabric(node: Node): Promise<void> {
  const port = `port-${node.number}`;
  const { interface: device, address } = node.fabric;
  if (!(await linkExists(node.namespace, device))) {
    // Always the same MAC: of a node that was made anew the others would remember the old one for half a minute.
    const mac = `02:00:00:00:00:${node.number.toString(16).padStart(2, "0")}`;
    await ip(
      SWITCH_NAMESPACE,
      `link add ${port} mtu ${FABRIC.mtu} type veth peer name ${device} address ${mac} netns ${node.namespace}`,
    );
  }
  await ip(SWITCH_NAMESPACE, `link set ${port} master fabric up`);
  await ip(node.namespace, `link set ${device} mtu ${FABRIC.mtu} up`);
  await ip(node.namespace, `addr replace ${address}/${FABRIC.prefix} dev ${device}`);
}

async function linkToOperator(head: Node): Promise<void> {
  const { interface: device } = MANAGEMENT;
  if (!(await linkExists(head.namespace, device))) {
    await run(words(`ip link add ${OPERATOR.interface} type veth peer name ${device} netns ${head.namespace}`));
  }
  await run(words(`ip link set ${OPERATOR.interface} alias ${PREFIX} up`));
  await run(words(`ip addr replace ${OPERATOR.address}/${OPERATOR.prefix} dev ${OPERATOR.interface}`));
  await ip(head.namespace, `link set ${device} up`);
  await ip(head.namespace, `addr replace ${MANAGEMENT.address}/${OPERATOR.prefix} dev ${device}`);
}

/** Removes every part of the lab's network. Processes in its namespaces have to be gone. */
export async function removeNetwork(): Promise<void> {
  await attempt(words(`ip route del unreachable ${FABRIC.network} proto ${ROUTE_PROTOCOL}`));
  if (await isOurLink()) await attempt(["ip", "link", "del", OPERATOR.interface]);
  for (const name of await namespaces()) await run(["ip", "netns", "del", name]);
}

/** Removes a namespace, and with it the links into it; one that is not there is no error. */
export async function removeNamespace(name: string): Promise<void> {
  if ((await namespaces()).includes(name)) await run(["ip", "netns", "del", name]);
}

/** What is left of the lab's network on this machine, in words. */
export async function networkLeftovers(): Promise<string[]> {
  const left = (await namespaces()).map((name) => `network namespace ${name}`);
  if (await isOurLink()) left.push(`interface ${OPERATOR.interface}`);
  const route = await attempt(words(`ip route show proto ${ROUTE_PROTOCOL}`));
  if (route.stdout.includes(FABRIC.network)) left.push(`route ${FABRIC.network}`);
  return left;
}

/** The lab's network namespaces that exist. */
export async function namespaces(): Promise<string[]> {
  const { stdout } = await attempt(["ip", "netns", "list"]);
  return stdout
    .split("\n")
    .map((line) => line.split(" ")[0] ?? "")
    .filter((name) => name.startsWith(`${PREFIX}.`));
}

/** A link of a node. */
export type Link = "fabric" | "management";

/** Takes a node's link down, or up again, as pulling its cable does. Only the head has a management link. */
export async function setLink(node: Node, link: Link, state: "up" | "down"): Promise<void> {
  // At the far end, so that the node sees "no carrier" on an interface it still holds its address on.
  if (link === "fabric") await ip(SWITCH_NAMESPACE, `link set port-${node.number} ${state}`);
  else await run(["ip", "link", "set", OPERATOR.interface, state]);
}

async function isOurLink(): Promise<boolean> {
  const { stdout } = await attempt(["ip", "-j", "link", "show", "dev", OPERATOR.interface]);
  return stdout.includes(`"ifalias":"${PREFIX}"`);
}

async function linkExists(namespace: string, device: string): Promise<boolean> {
  return (await attempt(["ip", "-n", namespace, "link", "show", "dev", device])).code === 0;
}

async function ip(namespace: string, command: string): Promise<void> {
  await run(["ip", "-n", namespace, ...words(command)]);
}

function words(text: string): string[] {
  return text.split(" ");
}

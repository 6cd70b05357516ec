import { execOn, health, knownNodes } from "./hosts";
import { registryPids } from "./registry";
import { table } from "../../components/table";
import { type Node, REGISTRY } from "./topology";

/** What of the lab runs, as a table; and whether everything does. */
export async function status(): Promise<{ text: string; well: boolean }> {
  const nodes = knownNodes();
  if (nodes.length === 0) return { text: "There is no lab here. Start it: scripts/lab up", well: false };
  const rows = await Promise.all(nodes.map(nodeRow));
  const registry = registryPids().length > 0;
  const header = ["node", "address", "init", "sshd", "dockerd", "containers"];
  return {
    text: `${table([header, ...rows])}\nregistry at ${REGISTRY.host}: ${upOrDown(registry)}`,
    well: registry && rows.every((row) => !row.includes("down") && !/\((?!running)/.test(row.at(-1) ?? "")),
  };
}

async function nodeRow(node: Node): Promise<string[]> {
  const { init, sshd, dockerd } = await health(node);
  const format = "{{.Names}} ({{.State}})";
  const list = dockerd
    ? await execOn(node, ["docker", "ps", "--all", "--format", format], { timeout: 10_000 })
    : undefined;
  const containers = list?.stdout.trim().split("\n").sort().join(", ") ?? "";
  return [
    node.name,
    node.host,
    upOrDown(init),
    upOrDown(sshd),
    upOrDown(dockerd),
    containers === "" ? "-" : containers,
  ];
}

function upOrDown(up: boolean): string {
  return up ? "up" : "down";
}

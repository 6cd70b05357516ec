import type { NodeSettings } from "./schema";

/** Port of Ray's control service on the head, on the fabric. Ray's own default. */
export const rayPort = 6379;

/** Ports of Ray's services on every node, by chance where they are not said. Said, they can be checked, and a firewall opened. */
const nodeManagerPort = 6380;
const objectManagerPort = 6381;

/** TCP ports that other nodes connect to on the fabric address of a node. */
export function rayPorts(isHead: boolean): number[] {
  return [...(isHead ? [rayPort] : []), nodeManagerPort, objectManagerPort];
}

/** Ray's defaults reserve about 10 GiB of a Spark's unified memory for objects; vLLM passes none of that size. */
const objectStoreBytes = 1024 ** 3;

/** Where the driver and the workers find the head. */
export function rayAddress(head: NodeSettings): string {
  return `${urlHost(head.fabric.address)}:${rayPort}`;
}

/** An address as it stands before a port: IPv6 in brackets. */
export function urlHost(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

/**
 * Arguments of `ray` for the container of one node.
 *
 * @param node the node it runs on
 * @param head the first node, which the others join
 */
export function rayArguments(node: NodeSettings, head: NodeSettings): string[] {
  return [
    "start",
    "--block",
    ...(node === head
      ? ["--head", `--port=${rayPort}`, "--include-dashboard=false"]
      : [`--address=${rayAddress(head)}`]),
    `--node-ip-address=${node.fabric.address}`,
    `--node-manager-port=${nodeManagerPort}`,
    `--object-manager-port=${objectManagerPort}`,
    "--num-cpus=2",
    // One GPU a Spark. Without a GPU (the lab) it is a logical one, which places one rank a node all the same.
    "--num-gpus=1",
    `--object-store-memory=${objectStoreBytes}`,
  ];
}

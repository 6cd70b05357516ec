import type { Link } from "./network";
import { attempt, run } from "./run";
import { MANAGEMENT, type Node, OPERATOR, SWITCH_NAMESPACE } from "./topology";

/** One direction of a link: what leaves a device of a network namespace; without one, of this machine. */
interface Direction {
  namespace?: string;
  device: string;
}

function directions(node: Node, link: Link): { out: Direction; in: Direction } {
  const { namespace, number, fabric } = node;
  return link === "fabric"
    ? {
        out: { namespace, device: fabric.interface },
        in: { namespace: SWITCH_NAMESPACE, device: `port-${number}` },
      }
    : { out: { namespace, device: MANAGEMENT.interface }, in: { device: OPERATOR.interface } };
}

function inNamespace({ namespace }: Direction, argv: string[]): string[] {
  return namespace === undefined ? argv : ["ip", "netns", "exec", namespace, ...argv];
}

/**
 * Limits the rate of a node's link, each way.
 *
 * @param megabits a second; undefined: no limit
 */
export async function setRate(node: Node, link: Link, megabits: number | undefined): Promise<void> {
  for (const each of Object.values(directions(node, link))) {
    // None is there where there was no limit.
    if (megabits === undefined) await attempt(inNamespace(each, ["tc", "qdisc", "del", "dev", each.device, "root"]));
    else {
      // What may go at once: 10 ms' worth, as timers are slow, and a packet of the largest kind in any case.
      const burst = Math.max(65_536, Math.ceil((megabits * 1e6) / 8 / 100));
      const bucket = ["tbf", "rate", `${megabits}mbit`, "burst", String(burst), "latency", "50ms"];
      await run(inNamespace(each, ["tc", "qdisc", "replace", "dev", each.device, "root", ...bucket]));
    }
  }
}

/** Bytes that went over a node's link since it was made, from the node and to it. */
export async function bytesOf(node: Node, link: Link): Promise<{ sent: number; received: number }> {
  const sentBy = async (each: Direction) => {
    const file = `/sys/class/net/${each.device}/statistics/tx_bytes`;
    return Number((await run(inNamespace(each, ["cat", file]))).trim());
  };
  const { out, in: into } = directions(node, link);
  return { sent: await sentBy(out), received: await sentBy(into) };
}

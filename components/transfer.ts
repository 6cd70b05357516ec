import type { SparkNode } from "./sparkNode";

/** What came to a node, and how fast. */
export interface Transfer {
  bytes: number;
  seconds: number;
  /** 10^9 bytes a second; null: nothing had to move, or no time was taken. */
  gigabytesPerSecond: number | null;
}

/** What went from one node to another over the fabric. */
export type Copy = Transfer & { from: string; to: string };

export function transfer(bytes: number, seconds: number): Transfer {
  return { bytes, seconds, gigabytesPerSecond: bytes === 0 || seconds === 0 ? null : bytes / 1e9 / seconds };
}

/** What a node has to know of the one that it sends to. */
export function hop(node: SparkNode) {
  const { name, user, port, hostKey, fabric } = node.settings;
  return { name, user, address: fabric.address, port, hostKey };
}

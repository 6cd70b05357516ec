import { table } from "../table";
import type { NodeFacts } from "./facts";
import type { PreflightResult } from "./run";
import { gibibytes } from "./problem";

/** The facts of all nodes, what is not known of them, and the figures between them, for a terminal. */
export function renderTable({ facts, fabric }: Pick<PreflightResult, "facts" | "fabric">): string {
  const nodes = Object.entries(facts);
  const overview = table([["", ...nodes.map(([name]) => name)], ...rows(nodes.map(([, each]) => each))]);
  const notes = nodes.flatMap(([name, each]) => each.notes.map((note) => `${name}: ${note}`)).join("\n");
  const ways = fabric.map(({ from, to, mtuBytes, tcpGigabitsPerSecond }) => [
    from,
    to,
    known(mtuBytes),
    known(tcpGigabitsPerSecond),
  ]);
  const figures = table([["from", "to", "MTU passed", "TCP Gb/s"], ...ways]);
  return [overview, notes, ways.length === 0 ? "" : figures].filter((part) => part !== "").join("\n\n");
}

function rows(nodes: readonly NodeFacts[]): string[][] {
  const row = (title: string, pick: (facts: NodeFacts) => string) => [title, ...nodes.map(pick)];
  return [
    row("machine", ({ productName, architecture }) => `${known(productName)}, ${known(architecture)}`),
    row("system", ({ operatingSystem, dgxRelease }) =>
      [known(operatingSystem), ...(dgxRelease === null ? [] : [`DGX OS ${dgxRelease}`])].join(", "),
    ),
    row("kernel", ({ kernel }) => known(kernel)),
    row("GPU", ({ gpu }) => (gpu === null ? "-" : `${known(gpu.name)}, driver ${known(gpu.driverVersion)}`)),
    row("memory", ({ memory: { availableBytes, totalBytes } }) => `${size(availableBytes)} of ${size(totalBytes)}`),
    row("disk, images", ({ imageDisk }) => (imageDisk?.freeBytes == null ? "-" : `${size(imageDisk.freeBytes)} free`)),
    row("Docker", ({ docker }) => docker.version ?? docker.failure ?? "-"),
    row("clock", ({ clockSkewSeconds: skew }) => (skew === null ? "-" : `${skew} s off`)),
    row("interfaces", ({ interfaces }) =>
      interfaces
        .filter(({ name, up }) => up && name !== "lo")
        .map(({ name, mtuBytes }) => `${name} (MTU ${known(mtuBytes)})`)
        .join(", "),
    ),
    row(
      "RDMA",
      ({ rdmaDevices }) => rdmaDevices.map(({ name, portState }) => `${name} ${known(portState)}`).join(", ") || "-",
    ),
  ];
}

function known(value: string | number | null): string {
  return value === null ? "-" : String(value);
}

function size(bytes: number | null): string {
  return bytes === null ? "-" : gibibytes(bytes);
}

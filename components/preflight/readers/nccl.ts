// What nccl-tests and NCCL's own log tell. Null and empty lists stand for what the text does not tell.

/** A row of an nccl-tests table. */
export interface NcclPerfRow {
  sizeBytes: number;
  /** GB/s (bytes, not bits) on the bus. */
  outOfPlaceBusGBps: number;
  /** GB/s on the bus; null where the test does not run in place. */
  inPlaceBusGBps: number | null;
}

/**
 * Reads the tables of nccl-tests (`all_gather_perf` and its like). NCCL's log and ssh errors stand among the rows,
 * and times lose their decimals when large, so a row is told by its thirteen (or nine) columns. A cut row is left out.
 */
export function readNcclPerf(text: string): { rows: NcclPerfRow[]; averageBusGBps: number | null } {
  const rows: NcclPerfRow[] = [];
  for (const line of text.split(/\r?\n/)) {
    // size, count, type, redop, root; then time, algbw, busbw and #wrong, out of place and in place
    const row = /^\s*(\d+)\s+\d+\s+[a-z]\w*\s+\w+\s+-?\d+\s+(\S.*?)\s*$/.exec(line);
    const columns = row?.[2]?.split(/\s+/) ?? [];
    const outOfPlaceBusGBps = toNumber(columns[2]);
    if (outOfPlaceBusGBps === null || (columns.length !== 4 && columns.length !== 8)) continue;
    rows.push({ sizeBytes: Number(row?.[1]), outOfPlaceBusGBps, inPlaceBusGBps: toNumber(columns[6]) });
  }
  return { rows, averageBusGBps: toNumber(/^# Avg bus bandwidth\s*: (\S+)/m.exec(text)?.[1]) };
}

function toNumber(word: string | undefined): number | null {
  return word !== undefined && /^\d+(\.\d+)?$/.test(word) ? Number(word) : null;
}

/** What a log with NCCL_DEBUG=INFO tells of the network, of all hosts that wrote into it. */
export interface NcclDebug {
  /** e.g. `2.28.9+cuda13.0`. */
  version: string | null;
  /** `Socket` as soon as one host falls back to it. `IB` alone does not prove speed. */
  transport: "IB" | "Socket" | null;
  /** What carries the channels: `NET/IB`, `NET/Socket`, or a plugin, e.g. `NET/IBext_v11`. */
  plugin: string | null;
  /** The HCAs in use, in the order of their numbers, without `:port`; of several hosts, those of the one with fewest. */
  hcas: string[];
  /** The interface of NCCL's own connections (OOB), or of the sockets. */
  interface: string | null;
  /** By device number; the lowest where hosts or connections differ, for 0 is the one that harms. */
  gidIndexes: Record<string, number>;
  /** By device number: how many lines send or receive a channel over it. */
  channelsByDevice: Record<string, number>;
  /** By the number of a device that is listed but not used: the one NCCL sends over instead. */
  replacedDevices: Record<string, number>;
}

/** Reads NCCL's log, with its prefixes or without them. */
export function readNcclDebug(text: string): NcclDebug {
  const using = Array.from(text.matchAll(/(NET\/\w+) ?: Using (\[\d+\].*)/g));
  const channels = Array.from(text.matchAll(/ via (NET\/\w+)\/(\d+)/g));
  const networks = Array.from(text.matchAll(/ Using network (\w+)/g), ([, network = ""]) => `NET/${network}`);
  const plugins = [...channels, ...using].map(([, plugin = ""]) => plugin);
  const over = (transport: string) => [...plugins, ...networks].some((name) => name.startsWith(`NET/${transport}`));

  const hcaLists = using
    .map(([, , list = ""]) => Array.from(list.matchAll(/\[\d+\]([^\s:]+):\d+\/\w+/g), ([, hca = ""]) => hca))
    .filter((hcas) => hcas.length > 0);
  const gidIndexes: Record<string, number> = {};
  for (const [, device = "", gid] of text.matchAll(/ IbDev (\d+) Port \d+ .*?\bGID (\d+) /g)) {
    gidIndexes[device] = Math.min(Number(gid), gidIndexes[device] ?? Infinity);
  }
  const channelsByDevice: Record<string, number> = {};
  for (const [, , device = ""] of channels) channelsByDevice[device] = (channelsByDevice[device] ?? 0) + 1;
  const replaced = text.matchAll(/ overriding dev (\d+) with dev (\d+)/g);

  return {
    version: /\bNCCL version (\d\S*)/.exec(text)?.[1] ?? null,
    transport: over("Socket") ? "Socket" : over("IB") ? "IB" : null,
    plugin: plugins[0] ?? null,
    hcas: hcaLists.reduce<string[]>((least, hcas) => (hcas.length < least.length ? hcas : least), hcaLists[0] ?? []),
    interface: /(?: OOB |NET\/Socket ?: Using \[\d+\])([^\s:]+):/.exec(text)?.[1] ?? null,
    gidIndexes,
    channelsByDevice,
    replacedDevices: Object.fromEntries(Array.from(replaced, ([, device = "", other]) => [device, Number(other)])),
  };
}

/**
 * What is wrong with the network NCCL chose.
 *
 * @param expectedHcas the RDMA devices of the cables in use; empty where sockets are meant
 * @returns the faults in plain words; none when every HCA carries its share as far as the log tells
 */
export function ncclVerdict(debug: NcclDebug, expectedHcas: readonly string[]): string[] {
  if (expectedHcas.length === 0) return [];
  const expected = expectedHcas.join(" and ");
  if (debug.transport === "Socket") return [`NCCL sends over sockets (TCP) and not over ${expected}: far too slow`];

  const named = (device: string) => `device ${device} (${debug.hcas[Number(device)] ?? "not named"})`;
  const missing = expectedHcas.filter((hca) => !debug.hcas.includes(hca));
  const used = Object.keys(debug.channelsByDevice).map(Number);
  // NCCL numbers a device it merges from several behind those it lists: then the numbers do not tell which is idle.
  const merged = used.some((device) => device >= debug.hcas.length);
  const idle = debug.hcas.filter((hca, device) => expectedHcas.includes(hca) && !used.includes(device));
  return [
    ...(debug.hcas.length === 0
      ? [`the log does not say that NCCL sends over ${expected}`]
      : missing.map((hca) => `NCCL does not use ${hca}`)),
    ...(used.length === 0 || merged ? [] : idle.map((hca) => `NCCL lists ${hca}, but no channel goes over it`)),
    ...Object.entries(debug.gidIndexes)
      .filter(([, gid]) => gid === 0)
      .map(
        ([device]) => `${named(device)} uses GID index 0, a link-local address: slow; it needs its IPv4 RoCE v2 GID`,
      ),
    ...Object.entries(debug.replacedDevices).map(
      ([device, other]) => `${named(device)} is not used: its traffic goes over ${named(String(other))}`,
    ),
  ];
}

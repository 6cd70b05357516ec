// What the RDMA tools of a Spark print. Null and empty lists stand for what the text does not tell.

/** A line of `ibdev2netdev`: an RDMA device and the network interface it is the other face of. */
export interface DeviceInterface {
  device: string;
  port: number;
  netdev: string;
  /** The link is there, so a cable is plugged in. */
  up: boolean;
}

/** Reads `ibdev2netdev`. The order of its lines is not fixed: look devices up by name. */
export function readIbdev2netdev(text: string): DeviceInterface[] {
  return Array.from(
    text.matchAll(/^[ \t]*(\S+) port (\d+) ==> (\S+) \((Up|Down)\)/gm),
    ([, device = "", port, netdev = "", state]) => ({ device, port: Number(port), netdev, up: state === "Up" }),
  );
}

/** A line of `rdma link`. */
export interface RdmaLink {
  device: string;
  port: number;
  /** e.g. `ACTIVE`, `DOWN`. */
  state: string;
  /** e.g. `LINK_UP`, `DISABLED`. */
  physicalState: string;
  netdev: string | null;
}

/** Reads `rdma link` and `rdma link show`, which join device and port by `/`. */
export function readRdmaLink(text: string): RdmaLink[] {
  return Array.from(
    text.matchAll(/^[ \t]*link (\S+)\/(\d+) state (\S+) physical_state (\S+)(?: netdev (\S+))?/gm),
    ([, device = "", port, state = "", physicalState = "", netdev]) => ({
      device,
      port: Number(port),
      state,
      physicalState,
      netdev: netdev ?? null,
    }),
  );
}

/** A device of `ibv_devinfo`. */
export interface VerbsDevice {
  device: string;
  firmware: string | null;
  board: string | null;
  ports: VerbsPort[];
}

/** A port of a device of `ibv_devinfo`. */
export interface VerbsPort {
  port: number;
  /** e.g. `PORT_ACTIVE`, `PORT_DOWN`. */
  state: string | null;
  /** Largest RDMA payload; says nothing on a port that is down, which reports 1024. */
  activeMtuBytes: number | null;
  linkLayer: string | null;
}

/** Reads `ibv_devinfo`. All four devices of a Spark are one chip: they share firmware and system GUID. */
export function readIbvDevinfo(text: string): VerbsDevice[] {
  const devices: VerbsDevice[] = [];
  // The number that follows a name in brackets is the same thing once more: `PORT_ACTIVE (4)`, `4096 (5)`.
  for (const [, key, value = ""] of text.matchAll(/^[ \t]*(\w+):[ \t]*(\S.*?)[ \t]*(?:\(\d+\))?[ \t]*$/gm)) {
    const device = devices.at(-1);
    const port = device?.ports.at(-1);
    const count = /^\d+$/.test(value) ? Number(value) : null;
    if (key === "hca_id") devices.push({ device: value, firmware: null, board: null, ports: [] });
    if (device && key === "fw_ver") device.firmware = value;
    if (device && key === "board_id") device.board = value;
    if (device && key === "port" && count !== null) {
      device.ports.push({ port: count, state: null, activeMtuBytes: null, linkLayer: null });
    }
    if (port && key === "state") port.state = value;
    if (port && key === "active_mtu") port.activeMtuBytes = count;
    if (port && key === "link_layer") port.linkLayer = value;
  }
  return devices;
}

/** A line of `show_gids`. */
export interface Gid {
  device: string;
  port: number;
  /** What NCCL_IB_GID_INDEX counts. */
  index: number;
  gid: string;
  /** The IPv4 address in the GID; null on a link-local one, which routes nowhere. */
  address: string | null;
  /** RoCE version, `v1` or `v2`. */
  version: string | null;
  netdev: string | null;
}

/**
 * Reads `show_gids`. The IPv4 column is empty on link-local rows and blanks are all that parts the columns, so what
 * follows the GID is told by its looks, not by its place.
 */
export function readShowGids(text: string): Gid[] {
  return Array.from(
    text.matchAll(/^[ \t]*(\S+)[ \t]+(\d+)[ \t]+(\d+)[ \t]+(\S*:\S*)(.*)$/gm),
    ([, device = "", port, index, gid = "", rest = ""]) => {
      const words = rest.split(/\s+/).filter((word) => word !== "");
      const address = words.find((word) => /^\d+(\.\d+){3}$/.test(word)) ?? null;
      const version = words.find((word) => /^v\d+$/.test(word)) ?? null;
      const netdev = words.find((word) => word !== address && word !== version) ?? null;
      return { device, port: Number(port), index: Number(index), gid, address, version, netdev };
    },
  );
}

/** Rate and state of one port. */
export interface RateState {
  /** Gb/s, both ways each. A port that is down still reports one (40): it means nothing there. */
  rateGbps: number | null;
  /** e.g. `ACTIVE`, `DOWN`. */
  state: string | null;
}

/**
 * Reads the `rate` and `state` files of `/sys/class/infiniband/DEVICE/ports/1`, both on one line or each on its own.
 * Rates and states on lines of their own are paired in order, unless one is missing: then none can be.
 */
export function readRateState(text: string): RateState[] {
  const lines = text.split(/\r?\n/).map((line) => {
    const rate = /(?:^|\s)(\d+(?:\.\d+)?) Gb\/sec/.exec(line)?.[1];
    const state = /(?:^|\s)\d+: ([A-Z_]+)/.exec(line)?.[1] ?? null;
    return { rateGbps: rate === undefined ? null : Number(rate), state };
  });
  const both = lines.filter(({ rateGbps, state }) => rateGbps !== null && state !== null);
  const rates = lines.filter(({ rateGbps, state }) => rateGbps !== null && state === null);
  const states = lines.filter(({ rateGbps, state }) => rateGbps === null && state !== null);
  if (rates.length !== states.length) return [...both, ...rates, ...states];
  return [...both, ...rates.map(({ rateGbps }, index) => ({ rateGbps, state: states[index]?.state ?? null }))];
}

/** One PCI function. */
export interface PciFunction {
  /** e.g. `0002:01:00.1`. */
  address: string;
  description: string;
}

/** Reads the Mellanox functions out of `lspci`: on a Spark two ports on each of two PCI domains. */
export function readLspci(text: string): PciFunction[] {
  return Array.from(
    text.matchAll(/^[ \t]*((?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.*Mellanox.*?)[ \t]*$/gm),
    ([, address = "", description = ""]) => ({ address, description }),
  );
}

/** One result row of `ib_write_bw`. */
export interface WriteBandwidth {
  messageBytes: number;
  iterations: number;
  /** Gb/s; null where it was not measured: runs by time (`-D`) print 0.00. */
  peakGbps: number | null;
  /** Gb/s. */
  averageGbps: number;
}

/**
 * Reads one or more runs of `ib_write_bw --report_gbits`, also mixed into one stream: rows cannot be told apart by
 * run then, so devices and rows are lists of their own. Without Gb/s in the header no row is read. `Link type : IB`
 * stands on Ethernet too (`--force-link IB`), so it is not read at all.
 */
export function readIbWriteBw(text: string): {
  devices: string[];
  /** RDMA payload; the smallest where runs differ. */
  mtuBytes: number | null;
  results: WriteBandwidth[];
} {
  const devices = Array.from(text.matchAll(/\bDevice[ \t]*: (\S+)/g), ([, device = ""]) => device);
  const mtus = Array.from(text.matchAll(/^[ \t]*Mtu[ \t]*: (\d+)\[B\]/gm), ([, mtu]) => Number(mtu));
  const inGigabits = text.includes("BW average[Gb/sec]") && !/\[Mi?B\/sec\]/.test(text);
  const rows = text.matchAll(/^[ \t]*(\d+)[ \t]+(\d+)((?:[ \t]+\d+\.\d+){3,4})[ \t]*$/gm);
  const results = Array.from(rows, ([, messageBytes, iterations, rest = ""]) => {
    const [peak = 0, average = 0] = rest.trim().split(/\s+/).map(Number);
    const peakGbps = peak === 0 ? null : peak;
    return { messageBytes: Number(messageBytes), iterations: Number(iterations), peakGbps, averageGbps: average };
  });
  return { devices, mtuBytes: mtus.length === 0 ? null : Math.min(...mtus), results: inGigabits ? results : [] };
}

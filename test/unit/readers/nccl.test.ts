import fc from "fast-check";
import { expect, test } from "vitest";
import { type NcclDebug, ncclVerdict, readNcclDebug, readNcclPerf } from "../../../components/preflight/readers/nccl";
import { fixturesOf, invented, mutated } from "./mutated";

const fixtures = fixturesOf("nccl");

const row = (sizeBytes: number, outOfPlaceBusGBps: number, inPlaceBusGBps: number | null) => ({
  sizeBytes,
  outOfPlaceBusGBps,
  inPlaceBusGBps,
});
const nothing: NcclDebug = {
  version: null,
  transport: null,
  plugin: null,
  hcas: [],
  interface: null,
  gidIndexes: {},
  channelsByDevice: {},
  replacedDevices: {},
};
const noTable = { rows: [], averageBusGBps: null };
const port0 = ["rocep1s0f0", "roceP2p1s0f0"];
const port1 = ["rocep1s0f1", "roceP2p1s0f1"];

/** By file: the table, the log, the HCAs that should be used, the verdict. */
const cases: Record<string, [ReturnType<typeof readNcclPerf>, NcclDebug, string[], string[]]> = {
  "all_gather-1g-4g-one-cable.txt": [
    {
      rows: [row(1073741824, 19.73, 20.8), row(2147483648, 21.23, 22.05), row(4294967296, 22.14, 22.46)],
      averageBusGBps: 21.4033,
    },
    nothing,
    port1,
    ["the log does not say that NCCL sends over rocep1s0f1 and roceP2p1s0f1"],
  ],
  "all_gather-512m-16g-merged-nics.txt": [
    {
      rows: [
        row(536870912, 18.39, 19.48),
        row(1073741824, 19.93, 21),
        row(2147483648, 21.8, 22.95),
        row(4294967296, 22.93, 23.62),
        row(8589934592, 23.43, 23.97),
        row(17179869184, 23.74, 24.2),
      ],
      averageBusGBps: 22.1205,
    },
    nothing,
    [],
    [],
  ],
  "debug-info-two-rails.txt": [
    noTable,
    {
      version: "2.28.9+cuda13.0",
      transport: "IB",
      plugin: "NET/IB",
      hcas: port1,
      interface: "enp1s0f1np1",
      gidIndexes: {},
      channelsByDevice: { "0": 2, "1": 2 },
      replacedDevices: {},
    },
    port1,
    [],
  ],
  "debug-info-net-ib-but-slow.txt": [
    {
      rows: [row(1073741824, 2.82, 2.83), row(2147483648, 2.83, 2.84), row(4294967296, 2.83, 2.84)],
      averageBusGBps: 2.83174,
    },
    {
      version: null,
      transport: "IB",
      plugin: "NET/IB",
      hcas: port0,
      interface: "enp1s0f0np0",
      gidIndexes: { "0": 3, "1": 0 },
      channelsByDevice: { "0": 1, "1": 1 },
      replacedDevices: {},
    },
    port0,
    ["device 1 (roceP2p1s0f0) uses GID index 0, a link-local address: slow; it needs its IPv4 RoCE v2 GID"],
  ],
  "debug-info-ibext-both-twins-excerpt.txt": [
    noTable,
    {
      version: null,
      transport: "IB",
      plugin: "NET/IBext_v11",
      hcas: port1,
      interface: null,
      gidIndexes: {},
      channelsByDevice: { "0": 2, "1": 2 },
      replacedDevices: {},
    },
    port1,
    [],
  ],
  "debug-info-net-socket-excerpt.txt": [
    noTable,
    { ...nothing, version: "2.29.7+cuda13.2", transport: "Socket", plugin: "NET/Socket", interface: "enP7s7" },
    port0,
    ["NCCL sends over sockets (TCP) and not over rocep1s0f0 and roceP2p1s0f0: far too slow"],
  ],
  "debug-info-four-hcas-collapse-excerpt.txt": [
    noTable,
    { ...nothing, replacedDevices: { "2": 0, "3": 0 } },
    [...port0, ...port1],
    [
      "the log does not say that NCCL sends over rocep1s0f0 and roceP2p1s0f0 and rocep1s0f1 and roceP2p1s0f1",
      "device 2 (not named) is not used: its traffic goes over device 0 (not named)",
      "device 3 (not named) is not used: its traffic goes over device 0 (not named)",
    ],
  ],
  "error-ibv-modify-qp-110.txt": [
    noTable,
    nothing,
    port0,
    ["the log does not say that NCCL sends over rocep1s0f0 and roceP2p1s0f0"],
  ],
};

test("every fixture is read here", () => {
  expect(Object.keys(cases).sort()).toEqual(Object.keys(fixtures).sort());
});

test.each(Object.entries(cases))("%s", (file, [table, debug, expectedHcas, faults]) => {
  const text = fixtures[file] ?? "";
  expect(readNcclPerf(text)).toEqual(table);
  expect(readNcclDebug(text)).toEqual(debug);
  expect(ncclVerdict(readNcclDebug(text), expectedHcas)).toEqual(faults);
});

test.each([
  ["out of place only", "  1024  256  float  sum  0  27.1  0.04  0.02  0", [row(1024, 0.02, null)]],
  ["not in place", "  1024  256  float  sum  0  27.1  0.04  0.02  0  N/A  N/A  N/A  N/A", [row(1024, 0.02, null)]],
  [
    "nothing checked",
    "  1024  256  float  sum  0  27.1  0.04  0.02  N/A  27.0  0.04  0.03  N/A",
    [row(1024, 0.02, 0.03)],
  ],
  ["cut in the last busbw", "  1024  256  float  sum  0  27.1  0.04  0.02  0  27.0  0.04  0.", []],
  ["cut in the first busbw", "  1024  256  float  sum  0  27.1  0.04  0.", []],
])("a row: %s", (_, line, rows) => {
  expect(readNcclPerf(line)).toEqual({ rows, averageBusGBps: null });
});

const using = "NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [1]roceP2p1s0f0:1/RoCE [RO]; OOB enP7s7:10.20.0.1<0>\n";
const via = (device: number) => `NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/${device}/GDRDMA\n`;
const gid = (device: number, index: number) =>
  `NCCL INFO NET/IB: NCCL Dev 0 IbDev ${device} Port 1 qpn 9 mtu 5 GID ${index} (0/B)\n`;

test.each([
  ["all is well", using + via(0) + via(1) + gid(0, 3) + gid(1, 3), []],
  ["sockets are meant", "NCCL INFO Using network Socket\n", [], []],
  [
    "one host without its second twin",
    `${using}NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]\n`,
    ["NCCL does not use roceP2p1s0f0"],
  ],
  ["a twin listed and idle", using + via(0), ["NCCL lists roceP2p1s0f0, but no channel goes over it"]],
  ["both twins merged into a third device", using + via(2), []],
  [
    "a GID 0 on one connection of several",
    using + gid(0, 0) + gid(0, 3),
    ["device 0 (rocep1s0f0) uses GID index 0, a link-local address: slow; it needs its IPv4 RoCE v2 GID"],
  ],
  [
    "one host on sockets",
    `${using}NCCL INFO Using network Socket\n`,
    ["NCCL sends over sockets (TCP) and not over rocep1s0f0 and roceP2p1s0f0: far too slow"],
  ],
  [
    "twins collapsed",
    `${using}NCCL INFO NET/IB: Subnet-aware routing: overriding dev 1 with dev 0\n`,
    ["device 1 (roceP2p1s0f0) is not used: its traffic goes over device 0 (rocep1s0f0)"],
  ],
])("verdict: %s", (_, log, faults, expectedHcas: string[] = port0) => {
  expect(ncclVerdict(readNcclDebug(log), expectedHcas)).toEqual(faults);
});

test("the readers invent nothing and the verdict never throws, whatever the text", () => {
  fc.assert(
    fc.property(mutated(Object.values(fixtures)), (text) => {
      const debug = readNcclDebug(text);
      // Channels are counted, not read.
      const { channelsByDevice, ...read } = debug;
      const devices = [channelsByDevice, debug.gidIndexes, debug.replacedDevices].flatMap((by) => Object.keys(by));
      expect(invented([readNcclPerf(text), read, devices], text)).toEqual([]);
      expect(ncclVerdict(debug, port0)).toBeInstanceOf(Array);
    }),
    { numRuns: 1000 },
  );
});

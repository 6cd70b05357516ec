import fc from "fast-check";
import { expect, test } from "vitest";
import * as rdma from "../../../components/preflight/readers/rdma";
import { fixturesOf, invented, mutated } from "./mutated";

const fixtures = fixturesOf("rdma");

const netdev = (device: string, name: string, up: boolean) => ({ device, port: 1, netdev: name, up });
const link = (device: string, name: string, state: string, physicalState: string) => ({
  device,
  port: 1,
  state,
  physicalState,
  netdev: name,
});
const verbs = (device: string, state: string, activeMtuBytes: number) => ({
  device,
  firmware: "28.45.4028",
  board: "NVD0000000087",
  ports: [{ port: 1, state, activeMtuBytes, linkLayer: "Ethernet" }],
});
const linkLocal = (device: string, index: number, last: string, version: string, name: string) => ({
  device,
  port: 1,
  index,
  gid: `fe80:0000:0000:0000:7e1e:52ff:fed4:${last}`,
  address: null,
  version,
  netdev: name,
});
const routable = (device: string, index: number, last: string, address: string, version: string, name: string) => ({
  device,
  port: 1,
  index,
  gid: `0000:0000:0000:0000:0000:ffff:0a4d:${last}`,
  address,
  version,
  netdev: name,
});
const connectX = "Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]";

const cases: Record<string, [(text: string) => unknown, unknown]> = {
  "ibdev2netdev-no-cable.txt": [
    rdma.readIbdev2netdev,
    [
      netdev("rocep1s0f0", "enp1s0f0np0", false),
      netdev("roceP2p1s0f0", "enP2p1s0f0np0", false),
      netdev("rocep1s0f1", "enp1s0f1np1", false),
      netdev("roceP2p1s0f1", "enP2p1s0f1np1", false),
    ],
  ],
  "ibdev2netdev-one-cable-port0.txt": [
    rdma.readIbdev2netdev,
    [
      netdev("rocep1s0f0", "enp1s0f0np0", true),
      netdev("roceP2p1s0f0", "enP2p1s0f0np0", true),
      netdev("rocep1s0f1", "enp1s0f1np1", false),
      netdev("roceP2p1s0f1", "enP2p1s0f1np1", false),
    ],
  ],
  "ibdev2netdev-one-cable-port1-other-order.txt": [
    rdma.readIbdev2netdev,
    [
      netdev("roceP2p1s0f1", "enP2p1s0f1np1", true),
      netdev("roceP2p1s0f0", "enP2p1s0f0np0", false),
      netdev("rocep1s0f1", "enp1s0f1np1", true),
      netdev("rocep1s0f0", "enp1s0f0np0", false),
    ],
  ],
  "ibdev2netdev-two-cables.txt": [
    rdma.readIbdev2netdev,
    [
      netdev("rocep1s0f1", "enp1s0f1np1", true),
      netdev("roceP2p1s0f1", "enP2p1s0f1np1", true),
      netdev("rocep1s0f0", "enp1s0f0np0", true),
      netdev("roceP2p1s0f0", "enP2p1s0f0np0", true),
    ],
  ],
  "rdma-link-one-cable.txt": [
    rdma.readRdmaLink,
    [
      link("rocep1s0f0", "enp1s0f0np0", "ACTIVE", "LINK_UP"),
      link("roceP2p1s0f0", "enP2p1s0f0np0", "ACTIVE", "LINK_UP"),
      link("rocep1s0f1", "enp1s0f1np1", "DOWN", "DISABLED"),
      link("roceP2p1s0f1", "enP2p1s0f1np1", "DOWN", "DISABLED"),
    ],
  ],
  "rdma-link-two-cables.txt": [
    rdma.readRdmaLink,
    [
      link("roceP2p1s0f0", "enP2p1s0f0np0", "ACTIVE", "LINK_UP"),
      link("roceP2p1s0f1", "enP2p1s0f1np1", "ACTIVE", "LINK_UP"),
      link("rocep1s0f0", "enp1s0f0np0", "ACTIVE", "LINK_UP"),
      link("rocep1s0f1", "enp1s0f1np1", "ACTIVE", "LINK_UP"),
    ],
  ],
  "ibv_devinfo-one-cable.txt": [
    rdma.readIbvDevinfo,
    [
      verbs("rocep1s0f0", "PORT_DOWN", 1024),
      verbs("rocep1s0f1", "PORT_ACTIVE", 4096),
      verbs("roceP2p1s0f0", "PORT_DOWN", 1024),
      verbs("roceP2p1s0f1", "PORT_ACTIVE", 4096),
    ],
  ],
  "show_gids-one-cable.txt": [
    rdma.readShowGids,
    [
      linkLocal("rocep1s0f0", 0, "6f10", "v1", "enp1s0f0np0"),
      linkLocal("rocep1s0f0", 1, "6f10", "v2", "enp1s0f0np0"),
      routable("rocep1s0f0", 2, "000b", "10.77.0.11", "v1", "enp1s0f0np0"),
      routable("rocep1s0f0", 3, "000b", "10.77.0.11", "v2", "enp1s0f0np0"),
      linkLocal("rocep1s0f1", 0, "6f11", "v1", "enp1s0f1np1"),
      linkLocal("rocep1s0f1", 1, "6f11", "v2", "enp1s0f1np1"),
      linkLocal("roceP2p1s0f0", 0, "6f14", "v1", "enP2p1s0f0np0"),
      linkLocal("roceP2p1s0f0", 1, "6f14", "v2", "enP2p1s0f0np0"),
      routable("roceP2p1s0f0", 2, "080b", "10.77.8.11", "v1", "enP2p1s0f0np0"),
      routable("roceP2p1s0f0", 3, "080b", "10.77.8.11", "v2", "enP2p1s0f0np0"),
      linkLocal("roceP2p1s0f1", 0, "6f15", "v1", "enP2p1s0f1np1"),
      linkLocal("roceP2p1s0f1", 1, "6f15", "v2", "enP2p1s0f1np1"),
    ],
  ],
  "sysfs-rate-state.txt": [
    rdma.readRateState,
    [
      { rateGbps: 200, state: "ACTIVE" },
      { rateGbps: 40, state: "DOWN" },
      { rateGbps: 200, state: "ACTIVE" },
      { rateGbps: 40, state: "DOWN" },
    ],
  ],
  "lspci-mellanox.txt": [
    rdma.readLspci,
    [
      { address: "0002:01:00.0", description: connectX },
      { address: "0002:01:00.1", description: connectX },
      { address: "0000:01:00.0", description: connectX },
      { address: "0000:01:00.1", description: connectX },
    ],
  ],
  "ib_write_bw-dell-4qp.txt": [
    rdma.readIbWriteBw,
    {
      devices: ["rocep1s0f0"],
      mtuBytes: 1024,
      results: [{ messageBytes: 65536, iterations: 20000, peakGbps: 111.62, averageGbps: 111.61 }],
    },
  ],
  "ib_write_bw-one-rail-mtu1024.txt": [
    rdma.readIbWriteBw,
    {
      devices: ["roceP2p1s0f0"],
      mtuBytes: 1024,
      results: [{ messageBytes: 65536, iterations: 1059332, peakGbps: null, averageGbps: 92.57 }],
    },
  ],
  "ib_write_bw-two-rails-interleaved.txt": [
    rdma.readIbWriteBw,
    {
      devices: ["rocep1s0f1", "roceP2p1s0f1"],
      mtuBytes: 4096,
      results: [
        { messageBytes: 1048576, iterations: 70121, peakGbps: null, averageGbps: 98.04 },
        { messageBytes: 1048576, iterations: 70120, peakGbps: null, averageGbps: 98.04 },
      ],
    },
  ],
};

test("every fixture is read here", () => {
  expect(Object.keys(cases).sort()).toEqual(Object.keys(fixtures).sort());
});

test.each(Object.entries(cases))("%s", (file, [read, expected]) => {
  expect(read(fixtures[file] ?? "")).toEqual(expected);
});

const rows = "65536 5000 91.20 90.75 0.173\n";

test.each<[string, (text: string) => unknown, string, unknown]>([
  ["a rate alone", rdma.readRateState, "200 Gb/sec (4X HDR)\n", [{ rateGbps: 200, state: null }]],
  ["a state alone", rdma.readRateState, "4: ACTIVE\n", [{ rateGbps: null, state: "ACTIVE" }]],
  ["a slow rate", rdma.readRateState, "2.5 Gb/sec (1X SDR)\n", [{ rateGbps: 2.5, state: null }]],
  ["rate and state", rdma.readRateState, "200 Gb/sec (4X HDR)\n4: ACTIVE\n", [{ rateGbps: 200, state: "ACTIVE" }]],
  [
    "all rates, then all states",
    rdma.readRateState,
    "200 Gb/sec (4X HDR)\n40 Gb/sec (4X QDR)\n4: ACTIVE\n1: DOWN\n",
    [
      { rateGbps: 200, state: "ACTIVE" },
      { rateGbps: 40, state: "DOWN" },
    ],
  ],
  [
    "a state too few, so none is anyone's",
    rdma.readRateState,
    "200 Gb/sec (4X HDR)\n40 Gb/sec (4X QDR)\n1: DOWN\n",
    [
      { rateGbps: 200, state: null },
      { rateGbps: 40, state: null },
      { rateGbps: null, state: "DOWN" },
    ],
  ],
  [
    "a device without an interface",
    rdma.readRdmaLink,
    "link rocep1s0f0/1 state DOWN physical_state DISABLED \n",
    [{ device: "rocep1s0f0", port: 1, state: "DOWN", physicalState: "DISABLED", netdev: null }],
  ],
  [
    "a device that says little",
    rdma.readIbvDevinfo,
    "hca_id:\tmlx5_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\tinvalid MTU (0)\nhca_id:\tmlx5_1\n\t\t\tstate:\tPORT_ACTIVE (4)\n",
    [
      {
        device: "mlx5_0",
        firmware: null,
        board: null,
        ports: [{ port: 1, state: null, activeMtuBytes: null, linkLayer: null }],
      },
      { device: "mlx5_1", firmware: null, board: null, ports: [] },
    ],
  ],
  [
    "a GID and nothing more",
    rdma.readShowGids,
    "mlx5_0\t1\t0\tfe80::1\n",
    [{ device: "mlx5_0", port: 1, index: 0, gid: "fe80::1", address: null, version: null, netdev: null }],
  ],
  [
    "other PCI functions",
    rdma.readLspci,
    "000f:01:00.0 VGA compatible controller: NVIDIA Corporation Device 2e12 (rev a1)\n01:00.0 Ethernet controller: Mellanox MT2910\n",
    [{ address: "01:00.0", description: "Ethernet controller: Mellanox MT2910" }],
  ],
  [
    "megabytes, which are not gigabits",
    rdma.readIbWriteBw,
    ` #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n${rows}`,
    { devices: [], mtuBytes: null, results: [] },
  ],
  ["rows without any header", rdma.readIbWriteBw, rows, { devices: [], mtuBytes: null, results: [] }],
  ["two MTUs", rdma.readIbWriteBw, "Mtu : 4096[B]\nMtu : 1024[B]\n", { devices: [], mtuBytes: 1024, results: [] }],
])("%s", (_, read, text, expected) => {
  expect(read(text)).toEqual(expected);
});

test.each(Object.entries(rdma))("%s invents nothing, whatever the text", (_, read) => {
  fc.assert(
    fc.property(mutated(Object.values(fixtures)), (text) => {
      expect(invented(read(text), text)).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

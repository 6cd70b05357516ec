import fc from "fast-check";
import { expect, test } from "vitest";
import * as network from "../../../components/preflight/readers/network";
import { fixturesOf, invented, mutated } from "./mutated";

const fixtures = fixturesOf("network");

const running = ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"];
const loopback = ["LOOPBACK", "UP", "LOWER_UP"];
const unplugged = ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"];
const idle = (name: string) => ({ name, flags: unplugged, mtuBytes: 1500, state: "DOWN", rxBytes: 0, txBytes: 0 });
const planned = (name: string, address: string, dhcp4: boolean | null) => ({
  name,
  addresses: [address],
  mtuBytes: 9000,
  dhcp4,
});

const cases: Record<string, [(text: string) => unknown, unknown]> = {
  "ip-s-link-no-cable.txt": [
    network.readIpLink,
    [
      { name: "lo", flags: loopback, mtuBytes: 65536, state: "UNKNOWN", rxBytes: 402917355, txBytes: 402917355 },
      { name: "enP7s7", flags: running, mtuBytes: 9000, state: "UP", rxBytes: 31840277, txBytes: 298164403 },
      idle("enp1s0f0np0"),
      idle("enp1s0f1np1"),
      idle("enP2p1s0f0np0"),
      idle("enP2p1s0f1np1"),
      { name: "wlP9s9", flags: running, mtuBytes: 1500, state: "UP", rxBytes: 39206117843, txBytes: 691204478 },
      { name: "docker0", flags: unplugged, mtuBytes: 1500, state: "DOWN", rxBytes: 6541903, txBytes: 2987330615 },
      { name: "veth7c10e9f", flags: running, mtuBytes: 1500, state: "UP", rxBytes: 88120764, txBytes: 175903318 },
    ],
  ],
  "ip-addr-show-enp1s0f1np1.txt": [
    network.readIpAddress,
    [
      {
        name: "enp1s0f1np1",
        flags: running,
        mtuBytes: 1500,
        state: "UP",
        addresses: [{ address: "10.77.0.10", prefix: 24 }],
      },
    ],
  ],
  "ip-br-link-two-cables.txt": [
    network.readIpBriefLink,
    [
      { name: "lo", state: "UNKNOWN", flags: loopback },
      { name: "enP7s7", state: "UP", flags: running },
      { name: "enp1s0f0np0", state: "UP", flags: running },
      { name: "enp1s0f1np1", state: "UP", flags: running },
      { name: "enP2p1s0f0np0", state: "UP", flags: running },
      { name: "enP2p1s0f1np1", state: "UP", flags: running },
      { name: "wlP9s9", state: "UP", flags: running },
      { name: "docker0", state: "DOWN", flags: unplugged },
    ],
  ],
  "ip-br-addr-one-cable.txt": [
    network.readIpBriefAddress,
    [
      { name: "enP7s7", state: "UP", addresses: [{ address: "10.20.0.100", prefix: 23 }] },
      { name: "enp1s0f0np0", state: "UP", addresses: [{ address: "10.77.5.1", prefix: 29 }] },
      { name: "enp1s0f1np1", state: "DOWN", addresses: [] },
      { name: "enP2p1s0f0np0", state: "UP", addresses: [{ address: "10.77.5.9", prefix: 29 }] },
      { name: "enP2p1s0f1np1", state: "DOWN", addresses: [] },
    ],
  ],
  "ethtool-speed-200g.txt": [network.readEthtool, { speedMbps: 200000, linkDetected: true }],
  "netplan-40-cx7-one-cable-mtu9000.yaml.txt": [
    network.readNetplan,
    [planned("enp1s0f1np1", "10.77.0.12/24", false), planned("enP2p1s0f1np1", "10.77.8.12/24", false)],
  ],
  "netplan-40-cx7-four-ports-same-subnet.yaml.txt": [
    network.readNetplan,
    [
      planned("enp1s0f0np0", "10.77.1.1/16", null),
      planned("enp1s0f1np1", "10.77.1.2/16", null),
      planned("enP2p1s0f0np0", "10.77.1.3/16", null),
      planned("enP2p1s0f1np1", "10.77.1.4/16", null),
    ],
  ],
  "ping-jumbo-ok.txt": [
    network.readPing,
    { sentPayloadBytes: 8972, replies: 1, replyBytes: 8980, localMtuBytes: null },
  ],
  "ping-jumbo-local-mtu-1500.txt": [
    network.readPing,
    { sentPayloadBytes: 3872, replies: 0, replyBytes: null, localMtuBytes: 1500 },
  ],
};

test("every fixture is read here", () => {
  expect(Object.keys(cases).sort()).toEqual(Object.keys(fixtures).sort());
});

test.each(Object.entries(cases))("%s", (file, [read, expected]) => {
  expect(read(fixtures[file] ?? "")).toEqual(expected);
});

const silence = { sentPayloadBytes: null, replies: 0, replyBytes: null, localMtuBytes: null };

test.each<[string, (text: string) => unknown, string, unknown]>([
  [
    "ip link without counters",
    network.readIpLink,
    "3: enp1s0f0np0: <BROADCAST,UP> mtu 9000 qdisc mq state UP mode DEFAULT\n    link/ether 4c:ab:2e:70:15:c5\n",
    [{ name: "enp1s0f0np0", flags: ["BROADCAST", "UP"], mtuBytes: 9000, state: "UP", rxBytes: null, txBytes: null }],
  ],
  [
    "counters cut off, or in human numbers",
    network.readIpLink,
    "3: a: <>\n    RX:  bytes packets\n    TX:  bytes packets\n    4.2M 17k\n",
    [{ name: "a", flags: [], mtuBytes: null, state: null, rxBytes: null, txBytes: null }],
  ],
  [
    "several addresses; not the other end's",
    network.readIpAddress,
    [
      "2: enP7s7: <UP> mtu 1500 state UP",
      "    inet 10.20.0.100/23 brd 10.20.1.255 scope global enP7s7",
      "    inet6 fe80::4eab:2eff:fe70:15c4/64 scope link ",
      "5: tun0: <UP> mtu 1400 state UNKNOWN",
      "    inet 10.8.0.6 peer 10.8.0.5/32 scope global tun0",
    ].join("\n"),
    [
      {
        name: "enP7s7",
        flags: ["UP"],
        mtuBytes: 1500,
        state: "UP",
        addresses: [
          { address: "10.20.0.100", prefix: 23 },
          { address: "fe80::4eab:2eff:fe70:15c4", prefix: 64 },
        ],
      },
      { name: "tun0", flags: ["UP"], mtuBytes: 1400, state: "UNKNOWN", addresses: [] },
    ],
  ],
  [
    "a brief link without hardware address",
    network.readIpBriefLink,
    "tun0             UNKNOWN        <POINTOPOINT,UP> \nveth1@if2  UP  b6:4f:19:52:c0:7d <UP> \n",
    [
      { name: "tun0", state: "UNKNOWN", flags: ["POINTOPOINT", "UP"] },
      { name: "veth1", state: "UP", flags: ["UP"] },
    ],
  ],
  [
    "two addresses on one brief line",
    network.readIpBriefAddress,
    "enP7s7  UP  10.20.0.100/23 metric 100 fe80::1/64 \n",
    [
      {
        name: "enP7s7",
        state: "UP",
        addresses: [
          { address: "10.20.0.100", prefix: 23 },
          { address: "fe80::1", prefix: 64 },
        ],
      },
    ],
  ],
  [
    "ethtool without a cable",
    network.readEthtool,
    "\tSpeed: Unknown!\n\tLink detected: no\n",
    { speedMbps: null, linkDetected: false },
  ],
  ["ethtool without a word", network.readEthtool, "", { speedMbps: null, linkDetected: null }],
  [
    "netplan: an address with options, DHCP, no MTU, an MTU in no number",
    network.readNetplan,
    'network:\n  ethernets:\n    a:\n      dhcp4: yes\n      addresses: [{"10.0.0.1/24": {label: x}}, 10.0.0.2]\n    b: {mtu: big, dhcp4: maybe}\n    c:\n',
    [
      { name: "a", addresses: ["10.0.0.1/24"], mtuBytes: null, dhcp4: true },
      { name: "b", addresses: [], mtuBytes: null, dhcp4: null },
      { name: "c", addresses: [], mtuBytes: null, dhcp4: null },
    ],
  ],
  ["netplan: no YAML", network.readNetplan, "network: [", []],
  ["netplan: no interfaces", network.readNetplan, "network:\n  version: 2\n", []],
  [
    "an older ping",
    network.readPing,
    "ping: local error: Message too long, mtu=1500",
    { ...silence, localMtuBytes: 1500 },
  ],
  [
    "a newer ping",
    network.readPing,
    "ping: local error: message too long, mtu: 1492",
    { ...silence, localMtuBytes: 1492 },
  ],
  ["ping to IPv6", network.readPing, "PING fe80::1 (fe80::1) 1452 data bytes", { ...silence, sentPayloadBytes: 1452 }],
  [
    "three replies",
    network.readPing,
    [1, 2, 3].map((n) => `8980 bytes from 10.77.0.12: icmp_seq=${n} ttl=64 time=0.5 ms`).join("\n"),
    { ...silence, replies: 3, replyBytes: 8980 },
  ],
])("%s", (_, read, text, expected) => {
  expect(read(text)).toEqual(expected);
});

test.each(Object.entries(network))("%s invents nothing, whatever the text", (_, read) => {
  fc.assert(
    fc.property(mutated(Object.values(fixtures)), (text) => {
      const result = read(text);
      // How many replies came is counted, not read.
      expect(invented("replies" in result ? { ...result, replies: null } : result, text)).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

import { readFileSync } from "node:fs";
import type { NodeProbe, PeerResult } from "../../../components/preflight/probe";
import { readFacts } from "../../../components/preflight/readFacts";
import type { Settings } from "../../../components/schema";
import { parseSettings } from "../../../components/settings";
import { configurationOf } from "../stack";

/** A text that a real program printed. */
export const fixture = (name: string) => readFileSync(`${__dirname}/../../fixtures/${name}`, "utf8");

/** How a program ended on the node. */
export interface Output {
  code: number | null;
  stdout: string;
  stderr: string;
}

export const prints = (stdout: string): Output => ({ code: 0, stdout, stderr: "" });
export const fails = (stderr: string, code = 1): Output => ({ code, stdout: "", stderr });
export const missing: Output = { code: null, stdout: "", stderr: "No such file or directory" };

/** What `facts.py` prints, as an object. */
export interface Gathered {
  commands: Record<string, Output | undefined>;
  files: Record<string, string | null>;
  hostname: string | null;
  architecture: string | null;
  cpus: number | null;
  resolved: string[] | null;
  speeds: Record<string, string | null>;
  rdma: unknown[];
  imageDisk: { path: string; totalBytes: number | null; freeBytes: number | null } | null;
  modelDisk: { path: string; totalBytes: number | null; freeBytes: number | null } | null;
  containerOfProcess: Record<string, string>;
  containerMemoryBytes: Record<string, number | null>;
}

/** One of the two Sparks: which ConnectX port has the cable, and the addresses of its twins and of the other network. */
interface Spark {
  hostname: string;
  port: 0 | 1;
  cable: Record<string, string>;
  management: string | null;
}

const head: Spark = {
  hostname: "spark-a1b2",
  port: 1,
  cable: { enP2p1s0f1np1: "192.168.200.12", enp1s0f1np1: "192.168.201.12" },
  management: "10.1.230.180",
};
const worker: Spark = {
  hostname: "spark-c3d4",
  port: 0,
  cable: { enp1s0f0np0: "192.168.200.13", enP2p1s0f0np0: "192.168.201.13" },
  management: null,
};

const connectX = ["enP2p1s0f0np0", "enP2p1s0f1np1", "enp1s0f0np0", "enp1s0f1np1"];

/** `ip -json address`. */
function ipAddress({ cable, management }: Spark): string {
  const entry = (name: string, index: number, flags: string[], mtu: number, ...addresses: [string, number][]) => ({
    ifindex: index,
    ifname: name,
    flags,
    mtu,
    qdisc: "mq",
    operstate: flags.includes("LOWER_UP") ? "UP" : "DOWN",
    group: "default",
    txqlen: 1000,
    link_type: name === "lo" ? "loopback" : "ether",
    address: "4c:ab:2e:70:15:c4",
    broadcast: "ff:ff:ff:ff:ff:ff",
    addr_info: addresses.map(([local, prefixlen]) => ({
      family: local.includes(":") ? "inet6" : "inet",
      local,
      prefixlen,
      scope: "global",
      valid_life_time: 4294967295,
      preferred_life_time: 4294967295,
    })),
  });
  const up = ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"];
  const down = ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"];
  return JSON.stringify([
    entry("lo", 1, ["LOOPBACK", "UP", "LOWER_UP"], 65536, ["127.0.0.1", 8], ["::1", 128]),
    management === null
      ? entry("enP7s7", 2, down, 1500)
      : entry("enP7s7", 2, up, 1500, [management, 24], ["fe80::4eab:2eff:fe70:15c4", 64]),
    ...connectX.map((name, index) => {
      const address = cable[name];
      return address === undefined
        ? entry(name, 3 + index, down, 1500)
        : entry(name, 3 + index, up, 9000, [address, 24]);
    }),
    entry("docker0", 7, down, 1500, ["172.17.0.1", 16]),
  ]);
}

/** Devices of `/sys/class/infiniband`, with the GIDs of their ports. */
function rdma({ cable, port }: Spark): Gathered["rdma"] {
  return connectX.map((netdev) => {
    const name = `roce${netdev.slice(2, -3)}`;
    const hex = (address: string) => {
      const bytes = address.split(".").map((byte) => Number(byte).toString(16).padStart(2, "0"));
      return `0000:0000:0000:0000:0000:ffff:${bytes.slice(0, 2).join("")}:${bytes.slice(2).join("")}`;
    };
    const linkLocal = "fe80:0000:0000:0000:7e1e:52ff:fed4:6f11";
    const address = cable[netdev];
    const gids = [linkLocal, linkLocal, ...(address === undefined ? [] : [hex(address), hex(address)])];
    const isUp = name.endsWith(`f${port}`);
    return {
      name,
      firmware: "28.45.4028\n",
      netdevs: [netdev],
      ports: [
        {
          port: "1",
          state: isUp ? "4: ACTIVE\n" : "1: DOWN\n",
          rate: isUp ? "200 Gb/sec (4X HDR)\n" : "40 Gb/sec (4X QDR)\n",
          gids: gids.map((gid, index) => ({
            index: String(index),
            gid,
            type: index % 2 === 0 ? "IB/RoCE v1\n" : "RoCE v2\n",
            netdev: `${netdev}\n`,
          })),
        },
      ],
    };
  });
}

export const listenersText = [
  "LISTEN 0      4096      127.0.0.53%lo:53         0.0.0.0:*    uid:991 ino:8213 sk:1 cgroup:/system.slice/systemd-resolved.service <->                    ",
  "LISTEN 0      4096            0.0.0.0:22         0.0.0.0:*    ino:10455 sk:2 cgroup:/system.slice/ssh.service <->                                        ",
  "LISTEN 0      4096               [::]:22            [::]:*    ino:10457 sk:3 cgroup:/system.slice/ssh.service v6only:1 <->                               ",
  "",
].join("\n");

export const dockerInfo = JSON.stringify({
  version: "28.5.1",
  root: "/var/lib/docker",
  runtimes: {
    "io.containerd.runc.v2": { path: "runc" },
    nvidia: { path: "nvidia-container-runtime" },
    runc: { path: "runc" },
  },
});

/** A line of `docker ps`. */
export const container = (id: string, name: string, state: string, deployment = "") =>
  `${JSON.stringify({ id, name, state, deployment })}\n`;

export const digest = "0123456789abcdef".repeat(4);

/** `/proc/meminfo` of a Spark that does nothing. */
const meminfo = fixture("host/meminfo-after-stop.txt")
  .replace(/^MemFree: .*$/m, "MemFree:        118000000 kB")
  .replace(/^MemAvailable: .*$/m, "MemAvailable:   121000000 kB")
  .replace(/^Cached: .*$/m, "Cached:          3000000 kB\nSwapTotal:      16777212 kB\nSwapFree:       16776188 kB");

/** What `facts.py` gathers on a healthy GB10 with one cable, its clock showing 1764640002. */
export function gatheredSpark({
  spark = head,
  commands = {},
  files = {},
  ...overrides
}: Partial<Gathered> & { spark?: Spark } = {}): Gathered {
  const otherPort = (text: string) => text.replace(/f([01])$/gm, (_, port) => `f${port === "0" ? "1" : "0"}`);
  const devinfo = fixture("rdma/ibv_devinfo-one-cable.txt");
  return {
    commands: {
      date: prints("1764640002.250000000\n"),
      ipAddress: prints(ipAddress(spark)),
      route: prints(
        JSON.stringify(
          spark.management === null
            ? []
            : [{ dst: "default", gateway: "10.1.230.1", dev: "enP7s7", protocol: "dhcp", metric: 100, flags: [] }],
        ),
      ),
      listeners: prints(listenersText),
      nvidiaSmi: prints(fixture("nvidia-smi/table-580.159.03-vllm.txt")),
      gpuQuery: prints(fixture("nvidia-smi/query-index-name-bus-driver-cap-memory.txt")),
      computeApps: prints(""),
      nvcc: prints(fixture("host/nvcc-version-13.0.txt")),
      ibvDevinfo: prints(spark.port === 1 ? devinfo : otherPort(devinfo)),
      dockerInfo: prints(`${dockerInfo}\n`),
      containers: prints(""),
      images: prints("ubuntu:24.04 ubuntu@sha256:01 sha256:02\n<none>:<none> <none>@<none> sha256:03\n"),
      ...commands,
    },
    files: {
      "/etc/os-release": fixture("host/os-release-24.04.4.txt"),
      "/etc/dgx-release": fixture("host/dgx-release-gx10-four-updates.txt").replace(/^.*SERIAL.*\n/m, ""),
      "/proc/meminfo": meminfo,
      "/proc/sys/kernel/osrelease": "6.17.0-1021-nvidia\n",
      "/sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
      ...files,
    },
    hostname: spark.hostname,
    architecture: "aarch64",
    cpus: 20,
    resolved: ["127.0.1.1"],
    // Of a port without a link sysfs says -1, or nothing.
    speeds: Object.fromEntries([
      ["lo", null],
      ["enP7s7", spark.management === null ? "-1\n" : "10000\n"],
      ...connectX.map((name) => [name, name in spark.cable ? "200000\n" : "-1\n"]),
      ["docker0", null],
    ]) as Gathered["speeds"],
    rdma: rdma(spark),
    imageDisk: { path: "/var/lib/docker", totalBytes: 1_000_000_000_000, freeBytes: 700_000_000_000 },
    modelDisk: { path: "/home/aurora/models/m", totalBytes: 1_000_000_000_000, freeBytes: 700_000_000_000 },
    containerOfProcess: {},
    containerMemoryBytes: {},
    ...overrides,
  };
}

/** The question was sent two seconds before the node's clock was read, and answered one second after. */
export const asked = { sentAt: 1764640000, answeredAt: 1764640003 };

export const factsOf = (gathered: unknown) => readFacts(JSON.stringify(gathered), asked);

/** The settings of two Sparks, with some keys set. */
export function settingsOf(changes: Record<string, unknown> = {}): Settings {
  const parsed = parseSettings({ ...configurationOf("dev"), ...changes });
  if ("problems" in parsed) throw new Error(JSON.stringify(parsed.problems));
  return parsed.settings;
}

export const reached = (ports: readonly number[]): PeerResult => ({
  ports: Object.fromEntries(ports.map((port) => [String(port), null])),
  mtuBytes: 9000,
  mtuPassed: true,
  tcpBytesPerSecond: 4_000_000_000,
});

/** Two Sparks with which nothing is wrong, and the settings that fit them. */
export function healthyPair(): { probes: [NodeProbe, NodeProbe]; settings: Settings } {
  const settings = settingsOf();
  const [first, second] = settings.nodes;
  if (second === undefined) throw new Error("the configuration has one node");
  const model = { files: 40, bytes: 119_000_000_000, digest };
  return {
    settings,
    probes: [
      {
        node: first,
        failure: null,
        facts: factsOf(gatheredSpark()),
        model,
        fabric: { listening: null, peers: { [second.name]: reached([6380, 6381, 6382]) } },
      },
      {
        node: second,
        failure: null,
        facts: factsOf(gatheredSpark({ spark: worker })),
        model,
        fabric: { listening: null, peers: { [first.name]: reached([6379, 6380, 6381, 6382]) } },
      },
    ],
  };
}

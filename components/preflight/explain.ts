import { execFileSync } from "node:child_process";
import * as path from "node:path";
import * as host from "./readers/host";
import * as nccl from "./readers/nccl";
import * as network from "./readers/network";
import * as nvidia from "./readers/nvidiaSmi";
import * as rdma from "./readers/rdma";

/** An output that people paste: how it is recognised, and what is read of it. */
interface Kind {
  title: string;
  /** Looks at few lines from each place: a log may have a hundred thousand, all alike. */
  pattern: RegExp;
  read: (text: string) => unknown;
}

const kinds: readonly Kind[] = [
  { title: "nvidia-smi", pattern: /^\|[ \t]*NVIDIA-SMI \d/m, read: nvidia.readNvidiaSmi },
  { title: "nvidia-smi --version", pattern: /^NVIDIA-SMI version/m, read: nvidia.readNvidiaSmiVersion },
  { title: "nvidia-smi", pattern: /^NVIDIA-SMI has failed|Failed to initialize NVML/m, read: nvidia.nvidiaSmiFailure },
  { title: "/etc/dgx-release", pattern: /^DGX_\w+=/m, read: host.readDgxRelease },
  { title: "/etc/os-release", pattern: /^PRETTY_NAME=/m, read: host.readOsRelease },
  { title: "uname -a", pattern: /^Linux \S+ \S+ #\d/m, read: host.readUname },
  { title: "lscpu", pattern: /^Archite[ck]tur\w*: /m, read: host.readLscpu },
  { title: "/proc/meminfo", pattern: /^MemTotal: .*kB$/m, read: host.readMeminfo },
  { title: "free -h", pattern: /^[ \t]+total +used +free/m, read: host.readFree },
  { title: "df", pattern: /^Filesystem .*Mounted on$/m, read: host.readDf },
  { title: "nvcc --version", pattern: /^nvcc: NVIDIA/m, read: host.readNvcc },
  { title: "nvidia-ctk --version", pattern: /^NVIDIA Container Toolkit CLI/m, read: host.readNvidiaCtk },
  { title: "docker info", pattern: /^ *Default Runtime:/m, read: host.readDockerRuntimes },
  { title: "ibdev2netdev", pattern: /port \d{1,3} ==> /, read: rdma.readIbdev2netdev },
  { title: "rdma link", pattern: /^link \S+\/\d+ state /m, read: rdma.readRdmaLink },
  { title: "ibv_devinfo", pattern: /^hca_id:/m, read: rdma.readIbvDevinfo },
  { title: "show_gids", pattern: /^DEV[ \t]+PORT[ \t]+INDEX[ \t]+GID/m, read: rdma.readShowGids },
  { title: "sysfs rate and state", pattern: /\d Gb\/sec \(\d{1,3}X/, read: rdma.readRateState },
  { title: "lspci", pattern: /Mellanox Technologies/, read: rdma.readLspci },
  { title: "ib_write_bw", pattern: /RDMA_Write BW Test|BW average\[Gb\/sec\]/, read: rdma.readIbWriteBw },
  { title: "ip link", pattern: /^\d+: \S+: <[^>\n]*>.*\n[ \t]+link\/(?!.*\n[ \t]+inet)/m, read: network.readIpLink },
  { title: "ip address", pattern: /^[ \t]*\d+: \S+: <(?:.*\n){1,5}?[ \t]+inet6? /m, read: network.readIpAddress },
  { title: "ip -brief link", pattern: /^\S+ +(UP|DOWN|UNKNOWN) +[0-9a-f:x]+ </im, read: network.readIpBriefLink },
  {
    title: "ip -brief address",
    pattern: /^\S+ +(UP|DOWN|UNKNOWN) +[0-9a-f.:]+\/\d/m,
    read: network.readIpBriefAddress,
  },
  { title: "ethtool", pattern: /^[ \t]*Speed: |Link detected:/m, read: network.readEthtool },
  { title: "netplan", pattern: /^network:/m, read: network.readNetplan },
  { title: "ping", pattern: /^PING /m, read: network.readPing },
  { title: "nccl-tests", pattern: /^# nccl-tests version|^#[ \t]+size[ \t]+count[ \t]+type/m, read: nccl.readNcclPerf },
  { title: "NCCL's log", pattern: /NCCL INFO|NET\/(IB|Socket)/, read: nccl.readNcclDebug },
];

/** What a log or an output that was saved or pasted says, for people: known causes first, then the values read. */
export function explain(text: string): string {
  const script = path.join(__dirname, "../../scripts/remote/signatures.py");
  const causes = execFileSync("python3", ["-B", script], { input: text, encoding: "utf8" }).trim();
  const values = kinds
    .filter(({ pattern }) => pattern.test(text))
    .map(({ title, read }) => ({ title, value: read(text) }))
    .filter(({ value }) => value !== null)
    .map(({ title, value }) => `${title}: ${JSON.stringify(value, null, 2)}`);
  return [...(causes === "" ? [] : [causes]), ...values].join("\n\n") || "Nothing in it is known here.";
}

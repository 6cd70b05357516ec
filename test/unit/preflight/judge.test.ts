import fc from "fast-check";
import { expect, test } from "vitest";
import { localTag } from "../../../components/container";
import { codes, type ProblemCode } from "../../../components/preflight/codes";
import type { NodeFacts } from "../../../components/preflight/facts";
import { connectionProblem } from "../../../components/preflight/connectionProblem";
import { judge } from "../../../components/preflight/judge";
import type { NodeProbe } from "../../../components/preflight/probe";
import type { Problem } from "../../../components/preflight/problem";
import type { Settings } from "../../../components/schema";
import { digest, fixture, healthyPair, reached } from "./spark";

const gib = 1024 ** 3;
const deployment = "dev";
const other = "f".repeat(64);

/** Two Sparks, to be made worse. */
interface Pair {
  head: NodeFacts;
  worker: NodeFacts;
  probes: [NodeProbe, NodeProbe];
  settings: Settings;
}

function pair(): Pair {
  const { probes, settings } = healthyPair();
  const [head, worker] = probes.map(({ facts }) => facts);
  if (head == null || worker == null) throw new Error("a healthy node has facts");
  return { head, worker, probes, settings };
}

function judged(change: (pair: Pair) => void): Problem[] {
  const made = pair();
  change(made);
  return judge(made.probes, made.settings, deployment);
}

const brief = (problems: readonly Problem[]) =>
  problems.map(({ severity, node, code }) => `${severity} ${node} ${code}`);

function link(facts: NodeFacts, name: string): NodeFacts["interfaces"][0] {
  const found = facts.interfaces.find((each) => each.name === name);
  if (found === undefined) throw new Error(`no interface ${name}`);
  return found;
}

function device(facts: NodeFacts, name: string): NodeFacts["rdmaDevices"][0] {
  const found = facts.rdmaDevices.find((each) => each.name === name);
  if (found === undefined) throw new Error(`no device ${name}`);
  return found;
}

const headPort = (facts: NodeFacts) => link(facts, "enP2p1s0f1np1");
const workerPort = (facts: NodeFacts) => link(facts, "enp1s0f0np0");
const container = (name: string, owner: string | null, running: boolean, id = other) => ({
  id,
  name,
  running,
  deployment: owner,
  memoryBytes: null,
});

test("nothing is wrong with a healthy pair", () => {
  expect(judged(() => undefined)).toEqual([]);
});

interface Told {
  node: "spark-1" | "spark-2";
  found: string;
  expected: string;
  /** Left out: the code's own cure. */
  mend?: string;
}

// One row a code, or several: one change, and all that is said then.
const cases: [ProblemCode, (pair: Pair) => void, ...Told[]][] = [
  [
    "not-gb10",
    ({ head }) => {
      head.productName = "Precision 7960";
      Object.assign(head.gpu ?? {}, { name: "NVIDIA RTX A6000" });
    },
    { node: "spark-1", found: "GPU NVIDIA RTX A6000 in Precision 7960", expected: "NVIDIA GB10" },
  ],
  [
    "architecture-mismatch",
    ({ worker }) => {
      worker.architecture = "x86_64";
    },
    { node: "spark-2", found: "x86_64", expected: "aarch64" },
  ],
  [
    "architecture-mismatch",
    (made) => {
      made.settings.accelerator = "cpu";
      made.worker.architecture = "x86_64";
    },
    { node: "spark-2", found: "architecture x86_64", expected: "aarch64, as on spark-1" },
  ],
  [
    "gpu-missing",
    ({ head }) => {
      head.gpu = null;
    },
    { node: "spark-1", found: "no GPU", expected: "NVIDIA GB10" },
  ],
  [
    "gpu-missing",
    ({ worker }) => {
      worker.gpu = null;
      worker.notes = ["what uses the GPU: not known (x)", "the GPU: not known (driver-library-mismatch)"];
    },
    { node: "spark-2", found: "the GPU: not known (driver-library-mismatch)", expected: "NVIDIA GB10" },
  ],
  [
    "driver-unequal",
    ({ worker }) => {
      Object.assign(worker.gpu ?? {}, { driverVersion: "580.142" });
    },
    { node: "spark-2", found: "driver 580.142", expected: "580.159.03, as on spark-1" },
  ],
  [
    "kernel-holds-memory",
    ({ head, worker }) => {
      worker.kernel = head.kernel = "7.0.0-1019-nvidia";
      Object.assign(worker.memory, { cmaTotalBytes: 0, cmaFreeBytes: 940604 * 1024 });
      Object.assign(head.memory, { cmaTotalBytes: gib, cmaFreeBytes: gib });
    },
    {
      node: "spark-2",
      found: "CmaFree 0.9 GiB of CmaTotal 0.0 GiB, kernel 7.0.0-1019-nvidia",
      expected: "no more free than there is",
    },
  ],
  [
    "driver-590",
    ({ head, worker }) => {
      for (const { gpu } of [head, worker]) Object.assign(gpu ?? {}, { driverVersion: "590.48.01" });
    },
    { node: "spark-1", found: "driver 590.48.01, with CUDA graphs", expected: "580.x" },
    { node: "spark-2", found: "driver 590.48.01, with CUDA graphs", expected: "580.x" },
  ],
  [
    "kernel-unequal",
    ({ worker }) => {
      worker.kernel = "6.14.0-1015-nvidia";
    },
    { node: "spark-2", found: "kernel 6.14.0-1015-nvidia", expected: "6.17.0-1021-nvidia, as on spark-1" },
  ],
  [
    "gpu-in-use",
    ({ worker }) => {
      worker.gpuProcesses = [
        { pid: 4127, name: "python3", memoryBytes: 2 * gib, container: "" },
        { pid: 4128, name: "jupyter", memoryBytes: null, container: other },
      ];
    },
    {
      node: "spark-2",
      found: "python3 (pid 4127, 2.0 GiB), jupyter (pid 4128)",
      expected: "no other user of the GPU",
    },
  ],
  [
    "clock-skew",
    ({ worker }) => {
      worker.clockSkewSeconds = 600.3;
    },
    { node: "spark-2", found: "the clock is 600.3 s ahead of the operator's", expected: "within 30 s" },
  ],
  [
    "clock-skew",
    ({ head }) => {
      head.clockSkewSeconds = -30.1;
    },
    { node: "spark-1", found: "the clock is 30.1 s behind the operator's", expected: "within 30 s" },
  ],
  [
    "hostname-unresolved",
    ({ head }) => {
      head.hostnameAddresses = [];
    },
    {
      node: "spark-1",
      found: "spark-a1b2 resolves to nothing there",
      expected: "an address",
      mend: "in /etc/hosts there: 127.0.1.1 spark-a1b2",
    },
  ],
  [
    "hostname-elsewhere",
    ({ worker }) => {
      worker.hostnameAddresses = ["10.9.9.9", "192.168.200.13", "fe80::1"];
    },
    {
      node: "spark-2",
      found: "spark-c3d4 resolves to 10.9.9.9 there, which no interface has",
      expected: "an address of its own, or 127.0.1.1",
      mend: "in /etc/hosts there: 127.0.1.1 spark-c3d4",
    },
  ],
  [
    "memory-short",
    (made) => {
      made.settings.server.gpuMemoryUtilization = 0.87;
      made.worker.memory.availableBytes = 90 * gib;
    },
    {
      node: "spark-2",
      found: "90.0 GiB of 121.7 GiB are available",
      expected: "105.9 GiB for the engine",
      mend: "end what holds it (ps aux --sort=-rss | head), restart the Spark, or lower server.gpuMemoryUtilization",
    },
  ],
  [
    "memory-short",
    (made) => {
      made.settings.server.gpuMemoryUtilization = 0.87;
      // Enough for a worker.
      made.head.memory.availableBytes = 108 * gib;
    },
    {
      node: "spark-1",
      found: "108.0 GiB of 121.7 GiB are available",
      expected: "105.9 GiB for the engine, and 4.0 GiB beside it on the head",
      mend: "end what holds it (ps aux --sort=-rss | head), restart the Spark, or lower server.gpuMemoryUtilization",
    },
  ],
  [
    "page-cache",
    ({ worker }) => {
      worker.memory.freeBytes = 20 * gib;
    },
    {
      node: "spark-2",
      found: "20.0 GiB free, the rest of the 115.4 GiB available is page cache",
      expected: "103.4 GiB free",
    },
  ],
  [
    "swap-in-use",
    ({ head }) => {
      head.memory.swapFreeBytes = 5 * gib;
    },
    { node: "spark-1", found: "11.0 GiB are swapped out", expected: "less than 1.0 GiB" },
  ],
  [
    "disk-short",
    ({ worker }) => {
      worker.imageDisk = { path: "/var/lib/docker", totalBytes: 1e12, freeBytes: 39.9e9 };
    },
    { node: "spark-2", found: "37.2 GiB free at /var/lib/docker", expected: "37.3 GiB for the image" },
  ],
  [
    "docker-missing",
    ({ head }) => {
      head.docker = {
        version: null,
        hasNvidiaRuntime: null,
        failure: "missing",
        complaint: "No such file or directory",
      };
    },
    { node: "spark-1", found: "no program `docker`", expected: "Docker" },
  ],
  [
    "docker-down",
    ({ worker }) => {
      worker.docker = { version: null, hasNvidiaRuntime: null, failure: "down", complaint: null };
    },
    { node: "spark-2", found: "the daemon does not answer", expected: "a running daemon" },
  ],
  [
    "docker-down",
    ({ worker }) => {
      const complaint = 'Current context "spark" is not found';
      worker.docker = { version: null, hasNvidiaRuntime: null, failure: "down", complaint };
    },
    {
      node: "spark-2",
      found: 'the daemon does not answer: Current context "spark" is not found',
      expected: "a running daemon",
    },
  ],
  [
    "docker-denied",
    ({ worker }) => {
      worker.docker = { version: null, hasNvidiaRuntime: null, failure: "denied", complaint: "permission denied" };
    },
    {
      node: "spark-2",
      found: "aurora may not use Docker: permission denied",
      expected: "aurora in the group docker",
      mend: "sudo usermod -aG docker aurora, on spark-2",
    },
  ],
  [
    "docker-no-gpu",
    ({ head }) => {
      head.docker.hasNvidiaRuntime = false;
    },
    { node: "spark-1", found: "no runtime `nvidia`", expected: "NVIDIA's container runtime" },
  ],
  [
    "container-foreign",
    ({ worker }) => {
      worker.containers = [container("dgx-spark-dev-ray", null, false)];
    },
    {
      node: "spark-2",
      found: "container dgx-spark-dev-ray is not of this program",
      expected: "none of that name, or one of deployment dev",
      mend: "docker rename dgx-spark-dev-ray OTHER, or docker rm -f dgx-spark-dev-ray, on spark-2",
    },
  ],
  [
    "container-foreign",
    ({ head }) => {
      head.containers = [container("dgx-spark-dev-server", "prod", true)];
    },
    {
      node: "spark-1",
      found: "container dgx-spark-dev-server is of deployment prod",
      expected: "none of that name, or one of deployment dev",
      mend: "docker rename dgx-spark-dev-server OTHER, or docker rm -f dgx-spark-dev-server, on spark-1",
    },
  ],
  [
    "deployment-in-the-way",
    ({ worker }) => {
      worker.containers = [
        container("dgx-spark-prod-ray", "prod", true),
        container("dgx-spark-old-ray", "old", false),
        container("postgres", null, true),
      ];
    },
    {
      node: "spark-2",
      found: "container dgx-spark-prod-ray of deployment prod runs",
      expected: "deployment dev alone",
    },
  ],
  [
    "port-taken",
    ({ head }) => {
      head.listeners.push({ address: "127.0.0.1", port: 8000, owner: "python3 (pid 4242)", container: "" });
    },
    {
      node: "spark-1",
      found: "port 8000 is taken by python3 (pid 4242), on 127.0.0.1",
      expected: "free for the OpenAI API (server.port)",
    },
  ],
  [
    "port-taken",
    ({ worker }) => {
      worker.listeners.push({ address: "*", port: 6380, owner: "container 0123456789ab", container: digest });
    },
    {
      node: "spark-2",
      found: "port 6380 is taken by container 0123456789ab, on *",
      expected: "free for Ray",
      mend: "End the service: the ports of Ray are fixed.",
    },
  ],
  [
    // Ray listens on every address.
    "port-taken",
    ({ head }) => {
      head.listeners.push({ address: "127.0.0.1", port: 6379, owner: "redis-server (pid 7)", container: "" });
    },
    {
      node: "spark-1",
      found: "port 6379 is taken by redis-server (pid 7), on 127.0.0.1",
      expected: "free for Ray",
      mend: "End the service: the ports of Ray are fixed.",
    },
  ],
  [
    "container-stopped",
    ({ head }) => {
      head.containers = [
        container("dgx-spark-dev-ray", deployment, true),
        container("dgx-spark-dev-server", deployment, false),
      ];
    },
    {
      node: "spark-1",
      found: "container dgx-spark-dev-server does not run",
      expected: "one that runs, as `pulumi up` made it",
    },
  ],
  [
    "model-unusable",
    ({ probes }) => {
      probes[1].model = { problem: "model.path /m: 3 weight files are missing, first a.safetensors" };
    },
    {
      node: "spark-2",
      found: "model.path /m: 3 weight files are missing, first a.safetensors",
      expected: "a whole model in /home/aurora/models/Qwen3.5-122B-A10B-FP8, readable",
    },
  ],
  [
    "rsync-missing",
    ({ probes, settings }) => {
      settings.model.source = { kind: "path", revision: "main", timeoutMinutes: 9 };
      probes[1].model = { rsync: false, changed: [] };
    },
    { node: "spark-2", found: "no program rsync", expected: "rsync in the PATH" },
  ],
  [
    "model-changed",
    ({ probes }) => {
      probes[1].model = { rsync: true, changed: ["a.safetensors", "b.safetensors", "config.json"] };
    },
    {
      node: "spark-2",
      found: "a.safetensors and 2 more in /home/aurora/models/Qwen3.5-122B-A10B-FP8 changed or is missing",
      expected: "every file as it was when it was brought",
    },
  ],
  [
    "model-different",
    ({ probes }) => {
      probes[1].model = { files: 39, bytes: 118_000_000_000, digest: other };
    },
    {
      node: "spark-2",
      found: "39 files, 118000000000 bytes in /home/aurora/models/Qwen3.5-122B-A10B-FP8, with other names or sizes",
      expected: "40 files, 119000000000 bytes, as on spark-1",
    },
  ],
  [
    "fabric-interface-missing",
    ({ settings }) => {
      settings.nodes[0].fabric.interface = "enp9s0f1np1";
    },
    {
      node: "spark-1",
      found:
        "fabric.interface enp9s0f1np1 is not there; there are lo, enP7s7, enP2p1s0f0np0, enP2p1s0f1np1, enp1s0f0np0, enp1s0f1np1, docker0",
      expected: "enP2p1s0f1np1, which has 192.168.200.12",
    },
  ],
  [
    "fabric-interface-down",
    ({ worker }) => {
      // As it is with the cable out: networkd takes the addresses away, and the twin and the devices go down too.
      for (const name of ["enp1s0f0np0", "enP2p1s0f0np0"]) {
        Object.assign(link(worker, name), { up: false, speedMbps: null, addresses: [] });
      }
      for (const name of ["rocep1s0f0", "roceP2p1s0f0"]) {
        device(worker, name).portState = "DOWN";
        device(worker, name).gids.splice(2);
      }
    },
    {
      node: "spark-2",
      found: "enp1s0f0np0 is down",
      expected: "a link",
      mend: "put the cable in, or: sudo ip link set enp1s0f0np0 up, on spark-2",
    },
  ],
  [
    "fabric-interface-down",
    ({ head }) => {
      headPort(head).up = false;
    },
    {
      node: "spark-1",
      found: "enP2p1s0f1np1 is down",
      expected: "a link",
      mend: "put the cable in, or: sudo ip link set enP2p1s0f1np1 up, on spark-1",
    },
  ],
  [
    "fabric-address-missing",
    ({ worker }) => {
      workerPort(worker).addresses = [{ address: "192.168.200.31", prefix: 24 }];
    },
    {
      node: "spark-2",
      found: "fabric.address 192.168.200.13 is not on enp1s0f0np0, which has 192.168.200.31; no interface there has it",
      expected: "192.168.200.13 on enp1s0f0np0",
    },
  ],
  [
    "fabric-address-missing",
    // The other port, which has no cable: all that is wrong with it is beside the point.
    ({ probes }) => {
      probes[1].node.fabric.interface = "enp1s0f1np1";
    },
    {
      node: "spark-2",
      found: "fabric.address 192.168.200.13 is not on enp1s0f1np1, which has no address; enp1s0f0np0 has it",
      expected: "192.168.200.13 on enp1s0f1np1",
    },
  ],
  [
    "fabric-address-management",
    ({ settings }) => {
      Object.assign(settings.nodes[0].fabric, { interface: "enP7s7", address: "10.1.230.180" });
    },
    {
      node: "spark-1",
      found: "enP7s7 holds the default route",
      expected: "the interface of the cable between the Sparks",
    },
  ],
  [
    "fabric-address-management",
    ({ settings, head }) => {
      Object.assign(settings.nodes[0].fabric, { interface: "enP7s7", address: "10.1.230.180" });
      head.defaultRouteInterfaces = [];
    },
    {
      node: "spark-1",
      found: "enP7s7 is no ConnectX port",
      expected: "one of enP2p1s0f0np0, enP2p1s0f1np1, enp1s0f0np0, enp1s0f1np1",
    },
  ],
  [
    "fabric-address-twice",
    ({ worker }) => {
      workerPort(worker).addresses.push({ address: "192.168.200.12", prefix: 24 });
    },
    {
      node: "spark-2",
      found: "enp1s0f0np0 has 192.168.200.12, which is spark-1's fabric.address",
      expected: "each address on one machine",
    },
  ],
  [
    "fabric-mtu-unequal",
    ({ worker }) => {
      workerPort(worker).mtuBytes = 1500;
    },
    { node: "spark-2", found: "enp1s0f0np0: MTU 1500", expected: "9000, as enP2p1s0f1np1 on spark-1" },
  ],
  [
    "fabric-mtu-unequal",
    // The end that is too low is at fault, be it the head.
    ({ head, probes }) => {
      headPort(head).mtuBytes = 1500;
      Object.assign(probes[1].fabric?.peers["spark-1"] ?? {}, { mtuPassed: false });
    },
    { node: "spark-1", found: "enP2p1s0f1np1: MTU 1500", expected: "9000, as enp1s0f0np0 on spark-2" },
  ],
  [
    // Both are large enough: the usual one is the one to have.
    "fabric-mtu-unequal",
    ({ worker }) => {
      workerPort(worker).mtuBytes = 9216;
    },
    { node: "spark-2", found: "enp1s0f0np0: MTU 9216", expected: "9000, as enP2p1s0f1np1 on spark-1" },
  ],
  [
    "fabric-mtu-unequal",
    ({ head, worker }) => {
      headPort(head).mtuBytes = 9216;
      workerPort(worker).mtuBytes = 1500;
    },
    {
      node: "spark-2",
      found: "enp1s0f0np0: MTU 1500",
      expected: "9216, as enP2p1s0f1np1 on spark-1",
      mend: "Set the same MTU on all ends, in netplan: `mtu: 9216`.",
    },
  ],
  [
    "fabric-mtu-low",
    ({ head, worker }) => {
      headPort(head).mtuBytes = 1500;
      workerPort(worker).mtuBytes = 1500;
    },
    { node: "spark-1", found: "enP2p1s0f1np1: MTU 1500", expected: "9000, on all nodes" },
    { node: "spark-2", found: "enp1s0f0np0: MTU 1500", expected: "9000, on all nodes" },
  ],
  [
    "fabric-speed-unequal",
    ({ worker }) => {
      workerPort(worker).speedMbps = 50000;
    },
    {
      node: "spark-2",
      found: "enp1s0f0np0: speed in Mb/s 50000",
      expected: "200000, as enP2p1s0f1np1 on spark-1",
    },
  ],
  [
    "fabric-speed-low",
    ({ head, worker }) => {
      headPort(head).speedMbps = 50000;
      workerPort(worker).speedMbps = 50000;
    },
    { node: "spark-1", found: "enP2p1s0f1np1: 50000 Mb/s", expected: "at least 100000 Mb/s" },
    { node: "spark-2", found: "enp1s0f0np0: 50000 Mb/s", expected: "at least 100000 Mb/s" },
  ],
  [
    "hca-missing",
    ({ settings }) => {
      settings.nodes[0].fabric.hcas = ["rocep1s0f1", "mlx5_7"];
    },
    {
      node: "spark-1",
      found: "mlx5_7 is not there; there is roceP2p1s0f0, roceP2p1s0f1, rocep1s0f0, rocep1s0f1",
      expected: "mlx5_7",
    },
  ],
  [
    "hca-missing",
    ({ worker, probes }) => {
      worker.rdmaDevices = [];
      probes[1].node.fabric.hcas = ["rocep1s0f0"];
    },
    { node: "spark-2", found: "rocep1s0f0 is not there; there is no RDMA device", expected: "rocep1s0f0" },
  ],
  [
    "hca-other-port",
    ({ settings }) => {
      settings.nodes[0].fabric.hcas = ["rocep1s0f0", "roceP2p1s0f1"];
    },
    {
      node: "spark-1",
      found: "rocep1s0f0 belongs to enp1s0f0np0",
      expected: "a device of the port of enP2p1s0f1np1",
    },
  ],
  [
    "hca-down",
    ({ worker }) => {
      device(worker, "roceP2p1s0f0").portState = "DOWN";
    },
    { node: "spark-2", found: "roceP2p1s0f0 is DOWN", expected: "ACTIVE" },
  ],
  [
    "hca-twin-missing",
    ({ probes }) => {
      probes[1].node.fabric.hcas = ["rocep1s0f0"];
    },
    { node: "spark-2", found: "fabric.hcas names rocep1s0f0 alone", expected: "its twin too: roceP2p1s0f0" },
  ],
  [
    "hca-no-address",
    ({ head }) => {
      device(head, "rocep1s0f1").gids.splice(2);
    },
    {
      node: "spark-1",
      found: "rocep1s0f1 has no RoCE v2 GID with an IPv4 address",
      expected: "an address on enp1s0f1np1",
    },
  ],
  [
    // And not what else differs then: ports, MTU, speed.
    "fabric-subnets-differ",
    ({ head, settings, probes }) => {
      settings.accelerator = "cpu";
      settings.nodes[0].fabric = { interface: "enP7s7", address: "10.1.230.180", hcas: [] };
      head.defaultRouteInterfaces = [];
      link(head, "enP7s7").mtuBytes = 9216;
      for (const { fabric } of probes) {
        for (const { ports } of Object.values(fabric?.peers ?? {})) ports["6380"] = "Network is unreachable";
      }
    },
    {
      node: "spark-1",
      found: "spark-1: 10.1.230.180/24, spark-2: 192.168.200.13/24",
      expected: "addresses in one subnet",
    },
  ],
  [
    "fabric-blocked",
    ({ probes }) => {
      const peer = probes[1].fabric?.peers["spark-1"];
      Object.assign(peer ?? {}, { tcpBytesPerSecond: null, mtuPassed: null });
      Object.assign(peer?.ports ?? {}, { 6379: "no answer", 6382: "No route to host" });
    },
    {
      node: "spark-2",
      found:
        "no connection from 192.168.200.13 to spark-1, 192.168.200.12 (port 6379: no answer, port 6382: No route to host)",
      expected: "TCP between all fabric addresses, both ways",
    },
  ],
  [
    "fabric-untried",
    ({ probes }) => {
      probes[0].fabric = { listening: "192.168.200.12: Address already in use", peers: {} };
      // The other one finds nobody there.
      Object.assign(probes[1].fabric?.peers["spark-1"]?.ports ?? {}, { 6382: "Connection refused" });
    },
    { node: "spark-1", found: "192.168.200.12: Address already in use", expected: "a try of each way" },
  ],
  [
    "fabric-untried",
    ({ probes }) => {
      probes[1].fabric = { listening: "", peers: {} };
    },
    { node: "spark-2", found: "no answer", expected: "a try of each way" },
  ],
  [
    "fabric-mtu-path",
    ({ probes }) => {
      Object.assign(probes[0].fabric?.peers["spark-2"] ?? {}, { mtuPassed: false });
    },
    {
      node: "spark-1",
      found: "a packet of 9000 bytes does not reach spark-2, 192.168.200.13",
      expected: "MTU 9000 all the way",
    },
  ],
  [
    "fabric-slow",
    ({ probes }) => {
      Object.assign(probes[1].fabric?.peers["spark-1"] ?? {}, { tcpBytesPerSecond: 112_500_000 });
    },
    { node: "spark-2", found: "0.9 Gb/s to spark-1 by TCP", expected: "more, on a link of 200 Gb/s" },
  ],
];

test.each(cases)("%s", (code, change, ...told) => {
  const { severity, cure } = codes[code];
  expect(judged(change)).toEqual(
    told.map(({ mend = cure, ...rest }) => ({ code, severity, mend, allowed: false, ...rest })),
  );
});

const [headNode, workerNode] = healthyPair().settings.nodes;
if (workerNode === undefined) throw new Error("the configuration has one node");
const routes = {
  head: { node: headNode, via: undefined },
  worker: { node: workerNode, via: headNode },
};

// How `ssh` ended: its exit code (null: it was stopped), what it said, and what is told of it.
const connections: [ProblemCode, keyof typeof routes, number | null, string, string][] = [
  [
    "ssh-unreachable",
    "head",
    255,
    "ssh: connect to host 10.1.230.180 port 22: No route to host\n",
    "aurora@10.1.230.180:22: ssh: connect to host 10.1.230.180 port 22: No route to host",
  ],
  [
    "ssh-unreachable",
    "head",
    255,
    fixture("logs/ssh/could-not-resolve-linux.txt"),
    "aurora@10.1.230.180:22: ssh: Could not resolve hostname spark-a: Temporary failure in name resolution",
  ],
  ["ssh-unreachable", "head", 255, "", "aurora@10.1.230.180:22: no answer"],
  ["ssh-unreachable", "head", null, "\nno answer within 90 s", "aurora@10.1.230.180:22: no answer within 90 s"],
  ["ssh-unreachable", "head", null, "spawn ssh ENOENT", "aurora@10.1.230.180:22: spawn ssh ENOENT"],
  [
    "probe-failed",
    "head",
    null,
    'Authenticated to 10.1.230.180 ([10.1.230.180]:22) using "publickey".\n\nno answer within 25 s',
    "logged in; no answer within 25 s",
  ],
  [
    "ssh-host-key",
    "head",
    255,
    "Unable to negotiate with 10.1.230.180 port 22: no matching host key type found. Their offer: ssh-ed25519\n",
    "aurora@10.1.230.180:22: Unable to negotiate with 10.1.230.180 port 22: no matching host key type found. Their offer: ssh-ed25519",
  ],
  [
    "ssh-host-key",
    "head",
    255,
    "No ECDSA host key is known for 10.1.230.180 and you have requested strict checking.\nHost key verification failed.\n",
    "aurora@10.1.230.180:22: No ECDSA host key is known for 10.1.230.180 and you have requested strict checking.; Host key verification failed.",
  ],
  [
    "ssh-host-key",
    "head",
    255,
    fixture("logs/ssh/host-key-changed.txt"),
    "aurora@10.1.230.180:22: it showed the ED25519 key SHA256:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB",
  ],
  [
    "ssh-key-refused",
    "worker",
    255,
    "aurora@192.168.200.13: Permission denied (publickey).\n",
    "aurora@192.168.200.13:22 through spark-1 (aurora@10.1.230.180:22): aurora@192.168.200.13: Permission denied (publickey).",
  ],
  [
    "ssh-frozen",
    "head",
    255,
    fixture("logs/ssh/banner-timeout.txt"),
    "aurora@10.1.230.180:22: Connection timed out during banner exchange; Connection to 10.1.230.180 port 22 timed out",
  ],
  [
    "ssh-unreachable",
    "head",
    255,
    fixture("logs/ssh/kex-connection-reset.txt"),
    "aurora@10.1.230.180:22: kex_exchange_identification: read: Connection reset by peer; Connection reset by 10.1.230.180 port 22",
  ],
  // Behind a jump host a node that is off looks like one that does not speak, but for what the way through it tells.
  [
    "ssh-frozen",
    "worker",
    255,
    "OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19\ndebug1: mux_client_request_stdio_fwd: master session id: 3\nConnection timed out during banner exchange\nConnection to UNKNOWN port 65535 timed out\n",
    "aurora@192.168.200.13:22 through spark-1 (aurora@10.1.230.180:22): Connection timed out during banner exchange",
  ],
  [
    "ssh-unreachable",
    "worker",
    255,
    "channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\nkex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535\n",
    "aurora@192.168.200.13:22 through spark-1 (aurora@10.1.230.180:22): channel 0: open failed: connect failed: No route to host; kex_exchange_identification: Connection closed by remote host",
  ],
  [
    "ssh-unreachable",
    "worker",
    255,
    "OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19\nConnection timed out during banner exchange\nConnection to UNKNOWN port 65535 timed out\n",
    "aurora@192.168.200.13:22 through spark-1 (aurora@10.1.230.180:22): spark-1 has no answer of 192.168.200.13:22",
  ],
  [
    "probe-failed",
    "worker",
    127,
    "bash: line 1: python3: command not found\n",
    "bash: line 1: python3: command not found",
  ],
  ["probe-failed", "head", 0, "", "no answer"],
];

const trusted = "hostKey ssh-ed25519 …HeadHeadHead, SHA256:GfNAxRbXOQWy4rmzDEzny8WT9UwJJKPOL0+J9K7UQFI";

test.each(connections)("%s to the %s, exit code %j", (code, route, exit, stderr, found) => {
  const others = { "probe-failed": "facts as JSON", "ssh-host-key": trusted } as Partial<Record<ProblemCode, string>>;
  const expected = others[code] ?? "a connection";
  const node = routes[route].node.name;
  expect(connectionProblem(routes[route], { code: exit, stdout: "", stderr })).toEqual({
    ...{ code, severity: "error", node, found, expected, mend: codes[code].cure, allowed: false },
  });
});

/** Told once Ray is up, and of no facts. */
const later: ProblemCode[] = ["all-reduce-failed", "all-reduce-slow", "rdma-unused", "rdma-partly"];

test("every code is seen here", () => {
  const seen = [...cases, ...connections].map(([code]) => code);
  expect([...new Set([...seen, "ssh-jump-host", ...later])].sort()).toEqual(Object.keys(codes).sort());
});

// What is no problem.
test.each<[string, (pair: Pair) => void]>([
  [
    "driver 590 without CUDA graphs",
    ({ head, worker, settings }) => {
      for (const { gpu } of [head, worker]) Object.assign(gpu ?? {}, { driverVersion: "590.48.01" });
      settings.server.extraArgs = ["--enforce_eager"];
    },
  ],
  [
    "a clock within the limit",
    ({ head, worker }) => {
      head.clockSkewSeconds = 30;
      worker.clockSkewSeconds = -30;
    },
  ],
  [
    "an own name with all kinds of own addresses",
    ({ head }) => {
      head.hostnameAddresses = ["127.0.0.2", "127.0.1.1", "::1", "10.1.230.180", "192.168.200.12", "fe80::2"];
    },
  ],
  [
    "an own name elsewhere, when the interfaces are not known",
    ({ head }) => {
      head.hostnameAddresses = ["10.9.9.9"];
      head.interfaces = [];
    },
  ],
  [
    "memory just enough",
    ({ head, settings }) => {
      settings.server.gpuMemoryUtilization = 0.5;
      head.memory.availableBytes = (head.memory.totalBytes ?? 0) / 2 + 4 * gib;
    },
  ],
  [
    "links of 100 Gb/s",
    ({ head, worker }) => {
      headPort(head).speedMbps = 100_000;
      workerPort(worker).speedMbps = 100_000;
    },
  ],
  [
    "one RDMA device named, of a port that has no twin",
    ({ head, settings }) => {
      head.rdmaDevices = [device(head, "roceP2p1s0f1")];
      settings.nodes[0].fabric.hcas = ["roceP2p1s0f1"];
    },
  ],
  [
    "a little swap",
    ({ head }) => {
      head.memory.swapFreeBytes = (head.memory.swapTotalBytes ?? 0) - gib;
    },
  ],
  [
    "a small disk, with the image on it",
    ({ head, settings }) => {
      head.imageDisk = { path: "/var/lib/docker", totalBytes: 1e12, freeBytes: 1e9 };
      head.images?.push(localTag(deployment, settings.image));
    },
  ],
  [
    "a small disk, with the image on it under its own name, as destroying leaves it",
    ({ head, settings }) => {
      head.imageDisk = { path: "/var/lib/docker", totalBytes: 1e12, freeBytes: 1e9 };
      head.images?.push(settings.image);
    },
  ],
  [
    "a small disk, with images that are not known",
    ({ head }) => {
      head.imageDisk = { path: "/var/lib/docker", totalBytes: 1e12, freeBytes: 1e9 };
      head.images = null;
    },
  ],
  [
    "a disk just large enough",
    ({ head, settings }) => {
      settings.preflight.imageGB = 20;
      head.imageDisk = { path: "/var/lib/docker", totalBytes: 1e12, freeBytes: 20e9 };
    },
  ],
  [
    "a page cache, on CPU",
    ({ head, settings }) => {
      settings.accelerator = "cpu";
      head.memory.freeBytes = 0;
    },
  ],
  [
    "ports of others where ours are not wanted",
    ({ head, worker }) => {
      worker.listeners.push({ address: "0.0.0.0", port: 8000, owner: "a process of root", container: "" });
      worker.listeners.push({ address: "0.0.0.0", port: 6379, owner: "a process of root", container: "" });
      // A server on IPv4 stands beside one on IPv6's loopback.
      head.listeners.push({ address: "::1", port: 8000, owner: "node (pid 5)", container: "" });
    },
  ],
  [
    "RDMA devices by other names",
    ({ head, settings }) => {
      device(head, "roceP2p1s0f1").name = "mlx5_2";
      device(head, "rocep1s0f1").name = "mlx5_3";
      settings.nodes[0].fabric.hcas = ["mlx5_2", "mlx5_3"];
    },
  ],
  [
    "interfaces by other names",
    ({ head, settings }) => {
      headPort(head).name = "fabric0";
      link(head, "enp1s0f1np1").name = "fabric1";
      device(head, "roceP2p1s0f1").netdevs = ["fabric0"];
      device(head, "rocep1s0f1").netdevs = ["fabric1"];
      settings.nodes[0].fabric.interface = "fabric0";
    },
  ],
  [
    "a bond of both twins",
    ({ head, settings }) => {
      head.interfaces.push({ ...headPort(head), name: "bond0" });
      headPort(head).addresses = [];
      settings.nodes[0].fabric.interface = "bond0";
    },
  ],
  ...[false, true].map((withDefaultRoute): [string, (pair: Pair) => void] => [
    `bridges over the cable, of which the speed is not known, default routes: ${withDefaultRoute}`,
    (made) => {
      for (const { node, facts } of made.probes) {
        if (facts === null) continue;
        const port = link(facts, node.fabric.interface);
        facts.interfaces.push({ ...port, name: "br-fabric", speedMbps: null });
        port.addresses = [];
        node.fabric.interface = "br-fabric";
        if (withDefaultRoute) facts.defaultRouteInterfaces = ["br-fabric"];
      }
    },
  ]),
  [
    "a worker whose default route is over the cable",
    ({ worker }) => {
      worker.defaultRouteInterfaces = ["enp1s0f0np0"];
    },
  ],
  [
    "the twin holding the same address",
    ({ head }) => {
      head.interfaces.unshift({ ...headPort(head), name: "enp1s0f1" });
    },
  ],
  [
    "fabric addresses in two subnets, with a router between them",
    ({ head, settings }) => {
      headPort(head).addresses = [{ address: "192.168.9.12", prefix: 24 }];
      settings.nodes[0].fabric.address = "192.168.9.12";
    },
  ],
  [
    "no RDMA device named",
    ({ settings }) => {
      for (const { fabric } of settings.nodes) fabric.hcas = [];
    },
  ],
])("no problem: %s", (_, change) => {
  expect(judged(change)).toEqual([]);
});

/** The engine of this deployment, running on both nodes. */
function running({ head, worker }: Pair): void {
  for (const [facts, roles] of [
    [head, ["ray", "server"]],
    [worker, ["ray"]],
  ] as const) {
    facts.memory.availableBytes = 10 * gib;
    facts.memory.freeBytes = 2 * gib;
    facts.containers = roles.map((role, index) => ({
      ...container(`dgx-spark-dev-${role}`, deployment, true, index === 0 ? digest : other),
      memoryBytes: 4 * gib,
    }));
    facts.gpuProcesses = [
      { pid: 9052, name: "ray::RayWorkerWrapper.execute_method", memoryBytes: 98 * gib, container: digest },
    ];
    for (const port of [6379, 6380, 6381]) {
      facts.listeners.push({ address: "192.168.200.12", port, owner: "container 0123456789ab", container: digest });
      facts.listeners.push({ address: "192.168.200.13", port, owner: "container 0123456789ab", container: digest });
    }
  }
  head.listeners.push({ address: "0.0.0.0", port: 8000, owner: "container ffffffffffff", container: other });
}

test("what the deployment itself holds is in nobody's way", () => {
  expect(judged(running)).toEqual([]);
});

test.each<[string, string | null, number, string | undefined]>([
  ["a process of the user's", "", 8001, "python3 (pid 42)"],
  ["a container without a name here", "e".repeat(64), 8001, "python3 (pid 42)"],
  ["our own, in another role's place", digest, 8001, "container dgx-spark-dev-ray"],
  ["a container that is known", "d".repeat(64), 8001, "container web"],
  ["one for Ray's port", "", 6380, "python3 (pid 42)"],
  ["the server's own", other, 8001, undefined],
  ["what is not told", null, 8001, undefined],
])("who has a port beside the running deployment: %s", (_who, id, port, told) => {
  const problems = judged((made) => {
    running(made);
    // The setting has another port by now.
    made.settings.server.port = 8001;
    made.head.containers?.push(container("web", null, true, "d".repeat(64)));
    // Not the first that listens there.
    made.head.listeners.push({ address: "0.0.0.0", port, owner: "python3 (pid 42)", container: id });
  });
  expect(problems.map(({ code, found }) => [code, found])).toEqual(
    told === undefined ? [] : [["port-taken", `port ${port} is taken by ${told}, on 0.0.0.0`]],
  );
});

test("nor when it is not known how much it holds", () => {
  const withoutMemory = (made: Pair, ofContainers: boolean) => {
    running(made);
    const held = ofContainers ? made.worker.containers : made.worker.gpuProcesses;
    held?.forEach((each) => {
      each.memoryBytes = null;
    });
  };
  for (const ofContainers of [true, false]) {
    expect(
      judged((made) => {
        withoutMemory(made, ofContainers);
      }),
    ).toEqual([]);
  }
});

/** Ways not to know what the deployment itself holds. */
const unknownHolders: Record<string, (facts: NodeFacts) => void> = {
  containers: (facts) => (facts.containers = null),
  gpuProcesses: (facts) => (facts.gpuProcesses = null),
  place: ({ gpuProcesses }) => gpuProcesses?.forEach((each) => (each.container = null)),
};

test.each(Object.keys(unknownHolders))("nor when a question is not answered: %s", (key) => {
  expect(
    judged((made) => {
      running(made);
      for (const facts of [made.head, made.worker]) unknownHolders[key]?.(facts);
    }),
  ).toEqual([]);
});

test("what is no container's is a stranger's also where the containers are not known", () => {
  const problems = judged((made) => {
    running(made);
    for (const facts of [made.head, made.worker]) facts.containers = null;
    made.worker.gpuProcesses?.push({ pid: 7, name: "jupyter", memoryBytes: gib, container: "" });
    made.worker.listeners.unshift({ address: "*", port: 6380, owner: "nginx.service", container: "" });
  });
  expect(problems.map(({ node, code, found }) => [node, code, found])).toEqual([
    ["spark-2", "port-taken", "port 6380 is taken by nginx.service, on *"],
    ["spark-2", "gpu-in-use", "jupyter (pid 7, 1.0 GiB)"],
  ]);
});

test("a process of which it is not told where it runs is a stranger's where nothing of the deployment runs", () => {
  const problems = judged(({ worker }) => {
    worker.memory.availableBytes = 50 * gib;
    worker.gpuProcesses = [{ pid: 7, name: "sglang::scheduler", memoryBytes: 60 * gib, container: null }];
  });
  expect(brief(problems)).toEqual(["error spark-2 memory-short", "warning spark-2 gpu-in-use"]);
});

test("what was the deployment's, and is a stranger's now that it is stopped", () => {
  const problems = judged((made) => {
    running(made);
    for (const { containers } of [made.head, made.worker]) {
      containers?.forEach((each) => {
        each.running = false;
      });
    }
  });
  expect(brief(problems)).toEqual([
    "error spark-1 memory-short",
    ...Array.from({ length: 4 }, () => "error spark-1 port-taken"),
    "error spark-2 memory-short",
    "error spark-2 port-taken",
    "error spark-2 port-taken",
    "warning spark-1 gpu-in-use",
    "warning spark-1 container-stopped",
    "warning spark-1 container-stopped",
    "warning spark-2 gpu-in-use",
    "warning spark-2 container-stopped",
  ]);
  expect(problems[0]).toMatchObject({
    found: "10.0 GiB of 121.7 GiB are available",
    mend: "end ray::RayWorkerWrapper.execute_method (pid 9052, 98.0 GiB), restart the Spark, or lower server.gpuMemoryUtilization",
  });
  const held = (port: number, name: string) => ({
    found: `port ${String(port)} is held by processes of container ${name}, which Docker takes for stopped`,
    mend: `Run it again in a minute; if they are still there, \`docker restart ${name}\`, or restart the Spark.`,
  });
  const ray = "dgx-spark-dev-ray";
  expect(problems.filter(({ code }) => code === "port-taken")).toMatchObject([
    ...[6379, 6380, 6381].map((port) => ({ node: "spark-1", ...held(port, ray) })),
    { node: "spark-1", ...held(8000, "dgx-spark-dev-server") },
    ...[6380, 6381].map((port) => ({ node: "spark-2", ...held(port, ray) })),
  ]);
});

test("what holds the memory is named beside what holds the GPU", () => {
  const made = judged(({ worker }) => {
    worker.memory.availableBytes = 50 * gib;
    worker.gpuProcesses = [{ pid: 7, name: "sglang::scheduler", memoryBytes: 60 * gib, container: "" }];
  });
  expect(brief(made)).toEqual(["error spark-2 memory-short", "warning spark-2 gpu-in-use"]);
});

test("two nodes with one address: the one that has the other's is told both", () => {
  const problems = judged(({ worker }) => {
    workerPort(worker).addresses = [{ address: "192.168.200.12", prefix: 24 }];
  });
  expect(brief(problems)).toEqual(["error spark-2 fabric-address-missing", "error spark-2 fabric-address-twice"]);
});

test("crossed addresses are each node's own problem", () => {
  const problems = judged(({ head, worker }) => {
    headPort(head).addresses = [{ address: "192.168.200.13", prefix: 24 }];
    workerPort(worker).addresses = [{ address: "192.168.200.12", prefix: 24 }];
  });
  expect(brief(problems)).toEqual(["error spark-1 fabric-address-missing", "error spark-2 fabric-address-missing"]);
});

test("a wrong end of the fabric says it all, and a wrong RDMA device hides nothing", () => {
  const blocked = ({ probes }: Pair) => {
    for (const { fabric } of probes) {
      for (const { ports } of Object.values(fabric?.peers ?? {})) ports["6380"] = "no answer";
    }
  };
  const wrongAddress = judged((made) => {
    blocked(made);
    workerPort(made.worker).addresses = [];
  });
  expect(brief(wrongAddress)).toEqual(["error spark-2 fabric-address-missing"]);
  const wrongDevice = judged((made) => {
    blocked(made);
    made.probes[1].node.fabric.hcas = ["mlx5_7"];
  });
  expect(brief(wrongDevice)).toEqual([
    "error spark-1 fabric-blocked",
    "error spark-2 hca-missing",
    "error spark-2 fabric-blocked",
  ]);
});

test("one low end among three does not hide a narrow way between the others", () => {
  const { probes, settings } = healthyPair();
  const [first, second] = probes;
  const third = structuredClone(second);
  Object.assign(third.node, { name: "spark-3" });
  third.node.fabric.address = "192.168.200.14";
  const port = workerPort(third.facts as NodeFacts);
  Object.assign(port, { mtuBytes: 1500, addresses: [{ address: "192.168.200.14", prefix: 24 }] });
  Object.assign(first.fabric?.peers["spark-2"] ?? {}, { mtuPassed: false });
  Object.assign(first.fabric?.peers ?? {}, { "spark-3": { ...reached([6380]), mtuPassed: false } });
  const problems = judge([first, second, third], settings, deployment);
  expect(brief(problems)).toEqual(["error spark-1 fabric-mtu-path", "error spark-3 fabric-mtu-unequal"]);
});

// The MTUs of three ends, and which of them are told to have which: no end that is well is blamed for another.
test.each<[number[], Record<string, number>]>([
  [[9216, 9000, 9000], { "spark-1": 9000 }],
  [[9000, 9000, 9216], { "spark-3": 9000 }],
  [[9216, 9000, 9216], { "spark-2": 9216 }],
  [[9000, 1500, 9000], { "spark-2": 9000 }],
  [[1500, 9000, 1500], { "spark-1": 9000, "spark-3": 9000 }],
  [[1500, 1400, 1500], { "spark-2": 1500 }],
  [[9216, 9100, 1500], { "spark-2": 9216, "spark-3": 9216 }],
])("the MTUs %j", (mtus, blamed) => {
  const { probes, settings } = healthyPair();
  const three = [...probes, structuredClone(probes[1])];
  three.forEach(({ node, facts, fabric }, index) => {
    if (facts === null || fabric === null) throw new Error("a healthy node has facts");
    Object.assign(node, { name: `spark-${index + 1}` });
    fabric.peers = {};
    const port = link(facts, node.fabric.interface);
    port.mtuBytes = mtus[index] ?? null;
    if (index === 2) node.fabric.address = "192.168.200.14";
    port.addresses = [{ address: node.fabric.address, prefix: 24 }];
  });
  const unequal = judge(three, settings, deployment).filter(({ code }) => code === "fabric-mtu-unequal");
  expect(Object.fromEntries(unequal.map(({ node, expected }) => [node, parseInt(expected)]))).toEqual(blamed);
});

test("a node alone needs its address, and no link", () => {
  const { probes, settings, head } = pair();
  const [first] = probes;
  first.fabric = null;
  first.node.fabric.hcas = ["mlx5_7"];
  settings.nodes = [settings.nodes[0]];
  Object.assign(headPort(head), { up: false, mtuBytes: 1500, speedMbps: null });
  expect(judge([first], settings, deployment)).toEqual([]);
  headPort(head).addresses = [];
  expect(brief(judge([first], settings, deployment))).toEqual(["error spark-1 fabric-address-missing"]);
});

test("everything at once: all is told, errors first, then node by node", () => {
  const problems = judged((made) => {
    const { head, worker, probes, settings } = made;
    head.clockSkewSeconds = -600;
    head.hostnameAddresses = [];
    head.memory.availableBytes = 90 * gib;
    head.docker = { version: null, hasNvidiaRuntime: null, failure: "down", complaint: null };
    head.imageDisk = { path: "/var/lib/docker", totalBytes: 1e12, freeBytes: 1e9 };
    for (const port of [6379, 8000]) head.listeners.push({ address: "*", port, owner: "x.service", container: "" });
    settings.nodes[0].fabric.interface = "enp9s0";
    Object.assign(worker.gpu ?? {}, { driverVersion: "590.48.01" });
    worker.kernel = "6.14.0";
    worker.memory.swapFreeBytes = 0;
    worker.hostnameAddresses = ["10.9.9.9"];
    worker.containers = [container("dgx-spark-dev-ray", null, true), container("dgx-spark-prod-ray", "prod", true)];
    worker.listeners.push({ address: "192.168.200.13", port: 6381, owner: "a process of user 7", container: "" });
    probes[1].model = { problem: "it is not there" };
    Object.assign(workerPort(worker), { mtuBytes: 1500, speedMbps: 25000 });
    device(worker, "rocep1s0f0").portState = "DOWN";
    device(worker, "roceP2p1s0f0").gids.splice(2);
  });
  expect(brief(problems)).toEqual([
    "error spark-1 clock-skew",
    "error spark-1 hostname-unresolved",
    "error spark-1 memory-short",
    "error spark-1 docker-down",
    "error spark-1 disk-short",
    "error spark-1 port-taken",
    "error spark-1 port-taken",
    "error spark-1 fabric-interface-missing",
    "error spark-2 hostname-elsewhere",
    "error spark-2 driver-unequal",
    "error spark-2 container-foreign",
    "error spark-2 deployment-in-the-way",
    "error spark-2 port-taken",
    "error spark-2 model-unusable",
    "error spark-2 hca-down",
    "warning spark-2 kernel-unequal",
    "warning spark-2 driver-590",
    "warning spark-2 swap-in-use",
    "warning spark-2 fabric-speed-low",
    "warning spark-2 fabric-mtu-low",
    "warning spark-2 hca-no-address",
  ]);
});

test("a node that could not be asked leaves the other one judged", () => {
  const problems = judged(({ probes, head }) => {
    probes[1] = {
      ...probes[1],
      ...{ facts: null, model: null, fabric: null },
      failure: connectionProblem(routes.worker, { code: null, stdout: "", stderr: "" }),
    };
    head.clockSkewSeconds = 99;
    Object.assign(probes[0].fabric?.peers["spark-2"]?.ports ?? {}, { 6380: "no answer" });
  });
  expect(brief(problems)).toEqual(["error spark-1 clock-skew", "error spark-2 ssh-unreachable"]);
});

test("preflight.allow makes a warning of an error, marks it, and leaves the rest", () => {
  const problems = judged(({ worker, head, settings }) => {
    settings.preflight.allow = ["clock-skew", "driver-unequal"];
    worker.clockSkewSeconds = 99;
    head.hostnameAddresses = [];
    head.memory.swapFreeBytes = 0;
  });
  expect(problems.map(({ code, severity, allowed }) => [code, severity, allowed])).toEqual([
    ["hostname-unresolved", "error", false],
    ["swap-in-use", "warning", false],
    ["clock-skew", "warning", true],
  ]);
});

/**
 * Ways to know less. Not among them, because there it is something known: no GPU (no driver shows one), no address of the
 * own name (it resolves to nothing), Docker's failure, and an empty list of RDMA devices, which the kernel keeps.
 */
const losses: Record<string, (facts: NodeFacts, probe: NodeProbe) => void> = {
  ...Object.fromEntries(
    (
      [
        ...["hostname", "productName", "architecture", "operatingSystem", "dgxRelease", "kernel", "cpus"],
        ...["clockSkewSeconds", "cudaToolkitVersion", "imageDisk", "modelDisk", "hostnameAddresses"],
        ...["containers", "gpuProcesses", "images"],
      ] as const
    ).map((key) => [key, (facts: NodeFacts) => Object.assign(facts, { [key]: null })]),
  ),
  ...Object.fromEntries(
    ["interfaces", "defaultRouteInterfaces", "listeners", "notes"].map((key) => [
      key,
      (facts: NodeFacts) => Object.assign(facts, { [key]: [] }),
    ]),
  ),
  ...Object.fromEntries(
    (["name", "driverVersion", "cudaVersion", "computeCapability", "busId"] as const).map((key) => [
      `gpu.${key}`,
      ({ gpu }: NodeFacts) => Object.assign(gpu ?? {}, { [key]: null }),
    ]),
  ),
  ...Object.fromEntries(
    (
      [
        "totalBytes",
        "availableBytes",
        "freeBytes",
        "pageCacheBytes",
        "swapTotalBytes",
        "swapFreeBytes",
        "cmaTotalBytes",
        "cmaFreeBytes",
      ] as const
    ).map((key) => [`memory.${key}`, ({ memory }: NodeFacts) => Object.assign(memory, { [key]: null })]),
  ),
  "docker.version": ({ docker }) => (docker.version = null),
  "docker.hasNvidiaRuntime": ({ docker }) => (docker.hasNvidiaRuntime = null),
  mtu: ({ interfaces }) => interfaces.map((each) => (each.mtuBytes = null)),
  speed: ({ interfaces }) => interfaces.map((each) => (each.speedMbps = null)),
  firmware: ({ rdmaDevices }) => rdmaDevices.map((each) => (each.firmware = null)),
  netdevs: ({ rdmaDevices }) => rdmaDevices.map((each) => (each.netdevs = [])),
  portState: ({ rdmaDevices }) => rdmaDevices.map((each) => (each.portState = null)),
  rate: ({ rdmaDevices }) => rdmaDevices.map((each) => (each.rateGbps = null)),
  activeMtu: ({ rdmaDevices }) => rdmaDevices.map((each) => (each.activeMtuBytes = null)),
  gids: ({ rdmaDevices }) => rdmaDevices.map((each) => (each.gids = [])),
  gidVersion: ({ rdmaDevices }) => rdmaDevices.flatMap(({ gids }) => gids.map((each) => (each.version = null))),
  gidNetdev: ({ rdmaDevices }) => rdmaDevices.flatMap(({ gids }) => gids.map((each) => (each.netdev = null))),
  model: (_facts, probe) => (probe.model = null),
  fabric: (_facts, probe) => (probe.fabric = null),
  peers: (_facts, { fabric }) => Object.assign(fabric ?? {}, { peers: {} }),
  measured: (_facts, { fabric }) =>
    Object.values(fabric?.peers ?? {}).map((each) =>
      Object.assign(each, { mtuBytes: null, mtuPassed: null, tcpBytesPerSecond: null }),
    ),
};

test("what is not known is no problem, in any combination", () => {
  const some = fc.subarray(Object.keys(losses));
  fc.assert(
    fc.property(some, some, fc.constantFrom("gb10", "cpu"), (ofHead, ofWorker, accelerator) => {
      const problems = judged(({ head, worker, probes, settings }) => {
        settings.accelerator = accelerator;
        for (const key of ofHead) losses[key]?.(head, probes[0]);
        for (const key of ofWorker) losses[key]?.(worker, probes[1]);
      });
      expect(brief(problems)).toEqual([]);
    }),
    { numRuns: 300 },
  );
});

const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: null });
const bytes = maybe(fc.constantFrom(0, 1, gib, 100 * gib, 128 * gib));
const word = fc.oneof(fc.constantFrom("aarch64", "590.1", "NVIDIA GB10", "dev", "constructor", ""), fc.string());
const netdev = fc.constantFrom("enp1s0f0np0", "enP2p1s0f1np1", "enP7s7", "lo", "bond0", "__proto__", "");
const address = fc.constantFrom("192.168.200.12", "192.168.200.13", "10.1.230.180", "::1", "*", "");
const few = <T>(arbitrary: fc.Arbitrary<T>) => fc.array(arbitrary, { maxLength: 4 });
const anyFacts: fc.Arbitrary<NodeFacts> = fc.record({
  hostname: maybe(word),
  hostnameAddresses: maybe(few(address)),
  productName: maybe(word),
  architecture: maybe(word),
  operatingSystem: maybe(word),
  dgxRelease: maybe(word),
  kernel: maybe(word),
  cpus: maybe(fc.nat()),
  clockSkewSeconds: maybe(fc.double()),
  gpu: maybe(
    fc.record({
      name: maybe(word),
      driverVersion: maybe(word),
      cudaVersion: maybe(word),
      computeCapability: maybe(word),
      busId: maybe(word),
      memoryTotalBytes: bytes,
    }),
  ),
  gpuProcesses: maybe(
    few(
      fc.record({
        pid: fc.nat(),
        name: word,
        memoryBytes: bytes,
        container: maybe(fc.constantFrom(digest, other, "")),
      }),
    ),
  ),
  cudaToolkitVersion: maybe(word),
  memory: fc.record({
    totalBytes: bytes,
    availableBytes: bytes,
    freeBytes: bytes,
    pageCacheBytes: bytes,
    swapTotalBytes: bytes,
    swapFreeBytes: bytes,
    cmaTotalBytes: bytes,
    cmaFreeBytes: bytes,
  }),
  imageDisk: maybe(fc.record({ path: word, totalBytes: bytes, freeBytes: bytes })),
  modelDisk: maybe(fc.record({ path: word, totalBytes: bytes, freeBytes: bytes })),
  docker: fc.record({
    version: maybe(word),
    hasNvidiaRuntime: maybe(fc.boolean()),
    failure: fc.constantFrom("missing", "denied", "down", null),
    complaint: maybe(word),
  }),
  interfaces: few(
    fc.record({
      name: netdev,
      up: fc.boolean(),
      mtuBytes: maybe(fc.constantFrom(0, 1500, 9000)),
      speedMbps: maybe(fc.constantFrom(1000, 200000)),
      addresses: few(fc.record({ address, prefix: fc.nat(128) })),
    }),
  ),
  defaultRouteInterfaces: few(netdev),
  rdmaDevices: few(
    fc.record({
      name: fc.constantFrom("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "mlx5_0", ""),
      firmware: maybe(word),
      netdevs: few(netdev),
      portState: maybe(fc.constantFrom("ACTIVE", "DOWN")),
      rateGbps: maybe(fc.nat()),
      activeMtuBytes: maybe(fc.nat()),
      gids: few(
        fc.record({
          index: fc.nat(),
          gid: word,
          version: maybe(fc.constantFrom("RoCE v2", "IB/RoCE v1")),
          address: maybe(address),
          netdev: maybe(netdev),
        }),
      ),
    }),
  ),
  listeners: few(
    fc.record({
      address,
      port: fc.constantFrom(22, 6379, 6380, 6381, 8000),
      owner: word,
      container: fc.constantFrom(null, "", digest),
    }),
  ),
  containers: maybe(
    few(
      fc.record({
        id: fc.constantFrom(digest, other),
        name: fc.constantFrom("dgx-spark-dev-ray", "dgx-spark-dev-server", "x"),
        running: fc.boolean(),
        deployment: maybe(fc.constantFrom("dev", "prod")),
        memoryBytes: bytes,
      }),
    ),
  ),
  images: maybe(few(word)),
  notes: few(word),
});
const anyFabric = fc.record({
  listening: maybe(word),
  peers: fc.dictionary(
    fc.constantFrom("spark-1", "spark-2"),
    fc.record({
      ports: fc.dictionary(fc.constantFrom("6379", "6380"), maybe(word)),
      mtuBytes: maybe(fc.nat()),
      mtuPassed: maybe(fc.boolean()),
      tcpBytesPerSecond: maybe(fc.double()),
    }),
  ),
});

test("any facts are judged: every problem is of a node, complete, and in order", () => {
  const any = fc.tuple(maybe(anyFacts), maybe(anyFabric));
  fc.assert(
    fc.property(any, any, fc.constantFrom(1, 2), (first, second, count) => {
      const { probes, settings } = healthyPair();
      [first, second].forEach(([facts, fabric], index) => Object.assign(probes[index] ?? {}, { facts, fabric }));
      const asked = probes.slice(0, count);
      const problems = judge(asked, settings, deployment);
      const places = problems.map(
        ({ severity, node }) => `${severity === "error" ? 0 : 1} ${asked.findIndex((each) => each.node.name === node)}`,
      );
      expect(places).toEqual([...places].sort());
      for (const { node, found, expected, mend } of problems) {
        expect(asked.map((each) => each.node.name)).toContain(node);
        expect(`${found}${expected}${mend}`).not.toMatch(/undefined|\[object/);
      }
    }),
    { numRuns: 500 },
  );
});

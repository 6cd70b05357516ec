import fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import type { NodeFacts } from "../../../components/preflight/facts";
import { readFacts } from "../../../components/preflight/readFacts";
import { type Listener, readListeners } from "../../../components/preflight/readers/listeners";
import { mutated } from "../readers/mutated";
import {
  asked,
  container,
  digest,
  dockerInfo,
  factsOf,
  fails,
  fixture,
  type Gathered,
  gatheredSpark,
  listenersText,
  missing,
  type Output,
  prints,
} from "./spark";

const kibibyte = 1024;
const mebibyte = 1024 ** 2;
const other = "f".repeat(64);

const linkLocal = "fe80:0000:0000:0000:7e1e:52ff:fed4:6f11";
const rdmaDevice = (name: string, netdev: string, up: boolean, gid = "", address = "") => ({
  name,
  firmware: "28.45.4028",
  netdevs: [netdev],
  portState: up ? "ACTIVE" : "DOWN",
  rateGbps: up ? 200 : 40,
  activeMtuBytes: up ? 4096 : 1024,
  gids: [
    { index: 0, gid: linkLocal, version: "IB/RoCE v1", address: null, netdev },
    { index: 1, gid: linkLocal, version: "RoCE v2", address: null, netdev },
    ...(gid === ""
      ? []
      : [
          { index: 2, gid, version: "IB/RoCE v1", address, netdev },
          { index: 3, gid, version: "RoCE v2", address, netdev },
        ]),
  ],
});
const link = (
  name: string,
  mtuBytes: number,
  speedMbps: number | null,
  ...addresses: { address: string; prefix: number }[]
) => ({ name, up: speedMbps !== null || name === "lo", mtuBytes, speedMbps, addresses });

/** A GB10 with our Ray and another program's container, and something on the GPU in the first. */
const busy = gatheredSpark({
  commands: {
    computeApps: prints(fixture("nvidia-smi/query-compute-apps-nounits.txt")),
    containers: prints(
      container(digest, "dgx-spark-dev-ray", "running", "dev") + container(other, "postgres", "exited"),
    ),
  },
  containerOfProcess: { "4127": "", "9052": digest },
  containerMemoryBytes: { [digest]: 3_500_000_000, [other]: null },
});

const facts: NodeFacts = {
  hostname: "spark-a1b2",
  hostnameAddresses: ["127.0.1.1"],
  productName: "NVIDIA_DGX_Spark",
  architecture: "aarch64",
  operatingSystem: "Ubuntu 24.04.4 LTS",
  dgxRelease: "7.6.0",
  kernel: "6.17.0-1021-nvidia",
  cpus: 20,
  clockSkewSeconds: 0,
  gpu: {
    name: "NVIDIA GB10",
    driverVersion: "580.159.03",
    cudaVersion: "13.0",
    computeCapability: "12.1",
    busId: "0000000F:01:00.0",
    memoryTotalBytes: null,
  },
  gpuProcesses: [
    { pid: 4127, name: "python3", memoryBytes: 231 * mebibyte, container: "" },
    { pid: 9052, name: "sglang::scheduler", memoryBytes: 95814 * mebibyte, container: digest },
  ],
  cudaToolkitVersion: "13.0",
  memory: {
    totalBytes: 127598764 * kibibyte,
    availableBytes: 121000000 * kibibyte,
    freeBytes: 118000000 * kibibyte,
    pageCacheBytes: 3015064 * kibibyte,
    swapTotalBytes: 16777212 * kibibyte,
    swapFreeBytes: 16776188 * kibibyte,
    cmaTotalBytes: 131072 * kibibyte,
    cmaFreeBytes: 70128 * kibibyte,
  },
  imageDisk: { path: "/var/lib/docker", totalBytes: 1_000_000_000_000, freeBytes: 700_000_000_000 },
  modelDisk: { path: "/home/aurora/models/m", totalBytes: 1_000_000_000_000, freeBytes: 700_000_000_000 },
  docker: { version: "28.5.1", hasNvidiaRuntime: true, failure: null, complaint: null },
  interfaces: [
    link("lo", 65536, null, { address: "127.0.0.1", prefix: 8 }, { address: "::1", prefix: 128 }),
    link(
      "enP7s7",
      1500,
      10000,
      { address: "10.1.230.180", prefix: 24 },
      { address: "fe80::4eab:2eff:fe70:15c4", prefix: 64 },
    ),
    link("enP2p1s0f0np0", 1500, null),
    link("enP2p1s0f1np1", 9000, 200000, { address: "192.168.200.12", prefix: 24 }),
    link("enp1s0f0np0", 1500, null),
    link("enp1s0f1np1", 9000, 200000, { address: "192.168.201.12", prefix: 24 }),
    link("docker0", 1500, null, { address: "172.17.0.1", prefix: 16 }),
  ],
  defaultRouteInterfaces: ["enP7s7"],
  rdmaDevices: [
    rdmaDevice("roceP2p1s0f0", "enP2p1s0f0np0", false),
    rdmaDevice("roceP2p1s0f1", "enP2p1s0f1np1", true, "0000:0000:0000:0000:0000:ffff:c0a8:c80c", "192.168.200.12"),
    rdmaDevice("rocep1s0f0", "enp1s0f0np0", false),
    rdmaDevice("rocep1s0f1", "enp1s0f1np1", true, "0000:0000:0000:0000:0000:ffff:c0a8:c90c", "192.168.201.12"),
  ],
  listeners: [
    { address: "127.0.0.53", port: 53, owner: "systemd-resolved.service", container: "" },
    { address: "0.0.0.0", port: 22, owner: "ssh.service", container: "" },
    { address: "::", port: 22, owner: "ssh.service", container: "" },
  ],
  containers: [
    { id: digest, name: "dgx-spark-dev-ray", running: true, deployment: "dev", memoryBytes: 3_500_000_000 },
    { id: other, name: "postgres", running: false, deployment: null, memoryBytes: null },
  ],
  images: [...["ubuntu:24.04", "ubuntu@sha256:01", "sha256:02"], ...["<none>:<none>", "<none>@<none>", "sha256:03"]],
  notes: [],
};

test("a GB10 with one cable", () => {
  expect(factsOf(busy)).toEqual(facts);
});

const hangs: Output = { code: null, stdout: "", stderr: "no answer within 4 s" };
const mismatch: Output = { code: 18, stdout: fixture("nvidia-smi/error-driver-library-mismatch.txt"), stderr: "" };
const noCommunication: Output = {
  code: 9,
  stdout: fixture("nvidia-smi/error-no-driver-communication.txt"),
  stderr: "",
};
const unknownGpu = {
  ...{ name: null, driverVersion: null, cudaVersion: null, computeCapability: null },
  ...{ busId: null, memoryTotalBytes: null },
};
const noDocker = (failure: "missing" | "denied" | "down", complaint: string | null) => ({
  docker: { version: null, hasNvidiaRuntime: null, failure, complaint },
});
const absent = (program: string) => `not known (no program ${program})`;
const denied =
  'permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.51/info": dial unix /var/run/docker.sock: connect: permission denied\n';
const down = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n";
const deniedNewer = "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock\n";
const deniedOlder = "Got permission denied while trying to connect to the Docker daemon socket\n";
const configDenied = "WARNING: Error loading config file: open /home/aurora/.docker/config.json: permission denied\n";
const downNewer =
  "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory\n";
const noMemory = {
  totalBytes: null,
  availableBytes: null,
  freeBytes: null,
  pageCacheBytes: null,
  swapTotalBytes: null,
  swapFreeBytes: null,
  cmaTotalBytes: null,
  cmaFreeBytes: null,
};

// One row a gap: what is gathered otherwise, and which facts change with it.
const gaps: [string, Partial<Gathered>, Partial<NodeFacts>][] = [
  ["no date", { commands: { date: missing } }, { clockSkewSeconds: null, notes: [`the clock: ${absent("date")}`] }],
  ["a date without a fraction", { commands: { date: prints("1764640002.%N\n") } }, { clockSkewSeconds: null }],
  [
    "no ip",
    { commands: { ipAddress: missing } },
    { interfaces: [], notes: [`the network interfaces: ${absent("ip")}`] },
  ],
  [
    "addresses cut",
    { commands: { ipAddress: prints('[{"ifname":"lo","flags":["UP"]') } },
    { interfaces: [], notes: ["the network interfaces: not known (its output can't be read)"] },
  ],
  [
    "routes that fail",
    { commands: { route: fails("Error: an inet prefix is expected\nsecond line\n") } },
    { defaultRouteInterfaces: [], notes: ["the default route: not known (second line)"] },
  ],
  ["no default route", { commands: { route: prints("[]\n") } }, { defaultRouteInterfaces: [] }],
  ["no ss", { commands: { listeners: missing } }, { listeners: [], notes: [`the ports in use: ${absent("ss")}`] }],
  [
    "no nvidia-smi",
    { commands: { nvidiaSmi: missing, gpuQuery: missing, computeApps: missing } },
    {
      gpu: null,
      gpuProcesses: [],
      notes: [`the GPU: ${absent("nvidia-smi")}`, `what uses the GPU: ${absent("nvidia-smi")}`],
    },
  ],
  [
    "nvidia-smi that hangs: there may be a GPU, and anything on it",
    { commands: { nvidiaSmi: hangs, gpuQuery: hangs, computeApps: hangs } },
    {
      gpu: unknownGpu,
      gpuProcesses: null,
      notes: ["the GPU", "what uses the GPU"].map((gap) => `${gap}: not known (no answer within 4 s)`),
    },
  ],
  [
    "nvidia-smi that hangs once, and shows no GPU at the other time",
    { commands: { nvidiaSmi: hangs, gpuQuery: noCommunication } },
    { gpu: null, notes: ["the GPU: not known (no answer within 4 s)"] },
  ],
  [
    "a driver of another version",
    { commands: { nvidiaSmi: mismatch, gpuQuery: mismatch, computeApps: mismatch } },
    {
      gpu: null,
      gpuProcesses: null,
      notes: ["the GPU: not known (driver-library-mismatch)", "what uses the GPU: not known (driver-library-mismatch)"],
    },
  ],
  [
    "no driver",
    { commands: { nvidiaSmi: noCommunication, gpuQuery: noCommunication, computeApps: noCommunication } },
    {
      gpu: null,
      gpuProcesses: null,
      notes: ["the GPU: not known (no-driver-communication)", "what uses the GPU: not known (no-driver-communication)"],
    },
  ],
  [
    "nvidia-smi without an answer to the query",
    { commands: { gpuQuery: hangs } },
    { gpu: { ...facts.gpu, computeCapability: null } as NodeFacts["gpu"] },
  ],
  [
    "nvidia-smi without a table",
    { commands: { nvidiaSmi: hangs } },
    {
      gpu: { ...facts.gpu, cudaVersion: null } as NodeFacts["gpu"],
      notes: ["the GPU: not known (no answer within 4 s)"],
    },
  ],
  [
    "a GPU with memory of its own",
    { commands: { gpuQuery: prints("0, NVIDIA RTX A6000, 00000000:01:00.0, 580.159.03, 8.6, 49140 MiB\n") } },
    {
      gpu: {
        ...facts.gpu,
        name: "NVIDIA RTX A6000",
        busId: "00000000:01:00.0",
        computeCapability: "8.6",
        memoryTotalBytes: 49140 * mebibyte,
      } as NodeFacts["gpu"],
    },
  ],
  [
    "no nvcc",
    { commands: { nvcc: missing } },
    { cudaToolkitVersion: null, notes: [`the CUDA toolkit's version: ${absent("nvcc")}`] },
  ],
  [
    "no ibv_devinfo",
    { commands: { ibvDevinfo: missing } },
    {
      rdmaDevices: facts.rdmaDevices.map((device) => ({ ...device, activeMtuBytes: null })),
      notes: [`the MTU that RDMA uses: ${absent("ibv_devinfo")}`],
    },
  ],
  [
    "no docker",
    { commands: { dockerInfo: missing, containers: missing } },
    { ...noDocker("missing", "No such file or directory"), containers: [] },
  ],
  ["docker that hangs", { commands: { dockerInfo: hangs } }, noDocker("down", "no answer within 4 s")],
  [
    "docker that hangs at every question: what runs is not known",
    { commands: { dockerInfo: hangs, containers: hangs } },
    {
      ...noDocker("down", "no answer within 4 s"),
      containers: null,
      notes: ["the containers: not known (no answer within 4 s)"],
    },
  ],
  [
    "docker stopped",
    {
      commands: {
        dockerInfo: { code: 1, stdout: '{"version":"","root":"","runtimes":null}\n', stderr: down },
        containers: fails(down),
      },
    },
    { ...noDocker("down", down.trim()), containers: [] },
  ],
  [
    "docker stopped, as a newer client says it",
    { commands: { dockerInfo: fails(downNewer) } },
    noDocker("down", downNewer.trim()),
  ],
  [
    "docker stopped, with the exit code 0",
    { commands: { dockerInfo: { code: 0, stdout: '{"version":"","runtimes":null}\n', stderr: down } } },
    noDocker("down", down.trim()),
  ],
  [
    "docker of podman, which has no such template",
    {
      commands: {
        dockerInfo: fails(
          "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg.\nError: template: info:1:16: can't evaluate field ServerVersion\n",
          125,
        ),
      },
    },
    noDocker("down", "Error: template: info:1:16: can't evaluate field ServerVersion"),
  ],
  [
    "docker that may not read its configuration, and is stopped",
    { commands: { dockerInfo: fails(`${configDenied}${down}`), containers: fails(`${configDenied}${down}`) } },
    { ...noDocker("down", down.trim()), containers: [] },
  ],
  [
    "docker that says nothing",
    { commands: { dockerInfo: fails(""), containers: fails("") } },
    { ...noDocker("down", null), containers: [] },
  ],
  ...[denied, deniedNewer, deniedOlder].map((said): (typeof gaps)[0] => [
    "docker denied",
    { commands: { dockerInfo: fails(`${configDenied}${said}`), containers: fails(said) } },
    { ...noDocker("denied", said.trim()), containers: [] },
  ]),
  [
    "docker denied, of version 20, whose `info` does not say so",
    {
      commands: {
        dockerInfo: fails(
          'template: :1:18: executing "" at <.ServerVersion>: reflect: indirection through nil pointer to embedded struct field Info\n',
        ),
        containers: fails(`Got ${denied}`),
      },
    },
    { ...noDocker("denied", `Got ${denied}`.trim()), containers: [] },
  ],
  [
    "docker without NVIDIA's runtime",
    { commands: { dockerInfo: prints(dockerInfo.replace('"nvidia"', '"kata"')) } },
    { docker: { ...facts.docker, hasNvidiaRuntime: false } },
  ],
  [
    "docker that does not tell its runtimes",
    { commands: { dockerInfo: prints('{"version":"28.5.1","root":"/var/lib/docker","runtimes":null}\n') } },
    { docker: { ...facts.docker, hasNvidiaRuntime: null } },
  ],
  [
    "containers not told",
    { commands: { containers: hangs } },
    { containers: null, notes: ["the containers: not known (no answer within 4 s)"] },
  ],
  [
    "images not told",
    { commands: { images: hangs } },
    { images: null, notes: ["the images: not known (no answer within 4 s)"] },
  ],
  ["images not asked for", { commands: { images: undefined } }, { images: [] }],
  [
    "containers in every state: those that hold what they took run",
    {
      commands: {
        containers: prints(
          ["created", "dead", "exited", "paused", "removing", "restarting", "running"]
            .map((state) => container(other, state, state))
            .join(""),
        ),
      },
    },
    {
      containers: ["created", "dead", "exited", "paused", "removing", "restarting", "running"].map((name) => ({
        ...{ id: other, name, deployment: null, memoryBytes: null },
        running: ["paused", "restarting", "running"].includes(name),
      })),
    },
  ],
  ["no file", { files: { "/etc/os-release": null } }, { operatingSystem: null }],
  ["no DGX OS", { files: { "/etc/dgx-release": null } }, { dgxRelease: null }],
  [
    "DGX OS as it was delivered",
    { files: { "/etc/dgx-release": 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n' } },
    { dgxRelease: "7.2.3" },
  ],
  ["no meminfo", { files: { "/proc/meminfo": null } }, { memory: noMemory }],
  ["no kernel", { files: { "/proc/sys/kernel/osrelease": null } }, { kernel: null }],
  ["no product name", { files: { "/sys/class/dmi/id/product_name": "\n" } }, { productName: null }],
  ["a name that resolves to nothing", { resolved: [] }, { hostnameAddresses: [] }],
  [
    "a name server that hangs",
    { resolved: null },
    { hostnameAddresses: null, notes: ["what its own name resolves to: not known (no answer in time)"] },
  ],
  ["no RDMA device", { rdma: [] }, { rdmaDevices: [] }],
  ["no disk", { imageDisk: null }, { imageDisk: null }],
  [
    "a disk that can't be read",
    { modelDisk: { path: "/m", totalBytes: null, freeBytes: null } },
    { modelDisk: { path: "/m", totalBytes: null, freeBytes: null } },
  ],
  [
    "a speed of no number",
    { speeds: { ...busy.speeds, enP7s7: "Unknown\n" } },
    { interfaces: facts.interfaces.map((each) => (each.name === "enP7s7" ? { ...each, speedMbps: null } : each)) },
  ],
  [
    "no process's container",
    { containerOfProcess: {} },
    { gpuProcesses: facts.gpuProcesses?.map((each) => ({ ...each, container: null })) ?? null },
  ],
];

test.each(gaps)("%s", (_, { commands = {}, files = {}, ...rest }, changed) => {
  const gathered = {
    ...busy,
    ...rest,
    commands: { ...busy.commands, ...commands },
    files: { ...busy.files, ...files },
  };
  expect(factsOf(gathered)).toEqual({ ...facts, ...changed });
});

const nothing: NodeFacts = {
  hostname: null,
  hostnameAddresses: null,
  productName: null,
  architecture: null,
  operatingSystem: null,
  dgxRelease: null,
  kernel: null,
  cpus: null,
  clockSkewSeconds: null,
  gpu: null,
  gpuProcesses: null,
  cudaToolkitVersion: null,
  memory: noMemory,
  imageDisk: null,
  modelDisk: null,
  docker: { version: null, hasNvidiaRuntime: null, failure: "down", complaint: null },
  interfaces: [],
  defaultRouteInterfaces: [],
  rdmaDevices: [],
  listeners: [],
  containers: null,
  images: [],
  notes: [
    "the GPU",
    "what uses the GPU",
    "the MTU that RDMA uses",
    "the CUDA toolkit's version",
    "the network interfaces",
    "the default route",
    "the ports in use",
    "the clock",
    "the containers",
  ].map((gap) => `${gap}: not known (no output)`),
};

test.each(["", "{}", "[]", "null", "5", '"text"', '{"commands":5,"rdma":{}}', '{"commands":{"date":{"code":0}}}'])(
  "nothing is known from %j",
  (text) => {
    expect(readFacts(text, asked)).toEqual(nothing);
  },
);

test("a Linux machine with none of the programs", () => {
  const programs = Object.keys(gatheredSpark().commands);
  const gathered = {
    ...gatheredSpark(),
    commands: Object.fromEntries(programs.map((name) => [name, missing])),
    files: { "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n", "/proc/meminfo": "MemTotal: 8000000 kB\n" },
    hostname: "box",
    architecture: "x86_64",
    cpus: 4,
    speeds: { lo: null, eth0: "1000\n" },
    rdma: [],
    imageDisk: null,
  };
  expect(factsOf(gathered)).toEqual({
    ...nothing,
    hostname: "box",
    hostnameAddresses: ["127.0.1.1"],
    architecture: "x86_64",
    kernel: "6.8.0-45-generic",
    cpus: 4,
    memory: { ...noMemory, totalBytes: 8000000 * kibibyte },
    modelDisk: facts.modelDisk,
    ...noDocker("missing", "No such file or directory"),
    gpuProcesses: [],
    containers: [],
    images: null,
    notes: [
      ...["the GPU: nvidia-smi", "what uses the GPU: nvidia-smi", "the MTU that RDMA uses: ibv_devinfo"],
      ...["the CUDA toolkit's version: nvcc", "the network interfaces: ip", "the default route: ip"],
      ...["the ports in use: ss", "the clock: date", "the images: docker"],
    ].map((note) => note.replace(/: (.*)$/, ": not known (no program $1)")),
  });
});

// The question was on its way from 1764640000 to 1764640003.
test.each<[string, number | null]>([
  ["1764640000.000000000\n", 0],
  ["1764640003.000000000\n", 0],
  ["1764640003.040000000\n", 0],
  ["1764639999.960000000\n", 0],
  ["1764640003.100000000\n", 0.1],
  ["1764639999.900000000\n", -0.1],
  ["1764640603.000000000\n", 600],
  ["1764639400.000000000\n", -600],
  ["1764640002\n", null],
  ["-1764640002.5\n", null],
  ["", null],
])("the clock at %j", (date, skew) => {
  expect(factsOf(gatheredSpark({ commands: { date: prints(date) } })).clockSkewSeconds).toBe(skew);
});

test("names that every object has are names like others", () => {
  const entry = (name: string) => ({ ifname: name, flags: ["UP"], mtu: 1500, addr_info: [] });
  const names = ["constructor", "toString", "__proto__"];
  const gathered = gatheredSpark({
    commands: {
      ipAddress: prints(JSON.stringify(names.map(entry))),
      containers: prints(names.map((name) => container(name, name, "running")).join("")),
    },
  });
  expect(factsOf(gathered)).toMatchObject({
    interfaces: names.map((name) => ({ name, speedMbps: null })),
    containers: names.map((name) => ({ id: name, memoryBytes: null })),
  });
});

test("GIDs stand in the order of their numbers, and of odd entries the rest is kept", () => {
  const gid = (index: unknown) => ({ index, gid: "fe80::1", type: null, netdev: null });
  const device = (ports: unknown) => ({ name: "mlx5_0", firmware: null, netdevs: [5, "enp1s0"], ports });
  const read = (ports: unknown) => factsOf(gatheredSpark({ rdma: [7, device(ports)] })).rdmaDevices;
  const empty = {
    name: "mlx5_0",
    firmware: null,
    netdevs: ["enp1s0"],
    portState: null,
    rateGbps: null,
    activeMtuBytes: null,
  };
  expect(read([{ gids: ["10", "9", "x", 4, "12345"].map(gid) }])).toEqual([
    {
      ...empty,
      gids: [9, 10].map((index) => ({ index, gid: "fe80::1", version: null, address: null, netdev: null })),
    },
  ]);
  expect(read(undefined)).toEqual([{ ...empty, gids: [] }]);
});

const scope = `docker-${digest}.scope`;
test.each<[string, string, Listener[]]>([
  [
    "root's",
    "LISTEN 0 4096 0.0.0.0:8000 0.0.0.0:* ino:10455 sk:2 cgroup:/ <->",
    [{ address: "0.0.0.0", port: 8000, owner: "a process of root", container: "" }],
  ],
  [
    "another user's",
    "LISTEN 0 4096 0.0.0.0:8000 0.0.0.0:* uid:1001 ino:10455 sk:2 cgroup:/user.slice/user-1001.slice/session-3.scope <->",
    [{ address: "0.0.0.0", port: 8000, owner: "a process of user 1001", container: "" }],
  ],
  [
    "one's own",
    'LISTEN 0 128 127.0.0.1:8888 0.0.0.0:* users:(("jupyter lab",pid=4242,fd=7),("jupyter lab",pid=4243,fd=7)) uid:1000 ino:5 sk:6 cgroup:/user.slice/user-1000.slice/session-3.scope <->',
    [{ address: "127.0.0.1", port: 8888, owner: "jupyter lab (pid 4242)", container: "" }],
  ],
  [
    "a container's, by systemd's scope",
    `LISTEN 0 2048 *:8000 *:* ino:9 sk:7 cgroup:/system.slice/${scope} v6only:0 <->`,
    [{ address: "*", port: 8000, owner: "container 0123456789ab", container: digest }],
  ],
  [
    "one's own, in a container",
    `LISTEN 0 128 *:8000 *:* users:(("vllm",pid=42,fd=7)) uid:1000 ino:5 sk:6 cgroup:/system.slice/${scope} v6only:0 <-> cgroup:/`,
    [{ address: "*", port: 8000, owner: "vllm (pid 42)", container: digest }],
  ],
  [
    "of a control group that is not told",
    "LISTEN 0 128 *:8000 *:* ino:5 sk:6 cgroup:unreachable:2f0 <->",
    [{ address: "*", port: 8000, owner: "a process of root", container: null }],
  ],
  [
    "a container's, by cgroupfs",
    `LISTEN 0 2048 192.168.200.12:6379 0.0.0.0:* uid:2000 ino:9 sk:7 cgroup:/docker/${digest} <->`,
    [{ address: "192.168.200.12", port: 6379, owner: "container 0123456789ab", container: digest }],
  ],
  [
    "a user's service",
    "LISTEN 0 5 0.0.0.0:9000 0.0.0.0:* uid:1001 ino:9 sk:7 cgroup:/user.slice/user-1001.slice/user@1001.service/app.slice/web.service <->",
    [{ address: "0.0.0.0", port: 9000, owner: "web.service", container: "" }],
  ],
  [
    "IPv6",
    "LISTEN 0 5 [::1]:631 [::]:* ino:9 sk:7 cgroup:/system.slice/cups.service v6only:1 <->",
    [{ address: "::1", port: 631, owner: "cups.service", container: "" }],
  ],
  [
    "IPv6 of one link",
    "LISTEN 0 5 [fe80::4eab:2eff:fe70:15c4]%enP7s7:546 [::]:* ino:9 sk:7 cgroup:/system.slice/x.service v6only:1 <->",
    [{ address: "fe80::4eab:2eff:fe70:15c4", port: 546, owner: "x.service", container: "" }],
  ],
  [
    "an older ss, without details",
    "LISTEN 0 128 :::22 :::*\n",
    [{ address: "::", port: 22, owner: "a process that is not known", container: null }],
  ],
  ["cut in the port", "LISTEN 0 4096 0.0.0.0:63", []],
  ["cut after the port", "LISTEN 0 4096 0.0.0.0:6379", []],
  ["cut in the peer", "LISTEN 0 4096 0.0.0.0:6379 0.0.0.", []],
  [
    "cut before the owner",
    "LISTEN 0 4096 0.0.0.0:6379 0.0.0.0:* ",
    [{ address: "0.0.0.0", port: 6379, owner: "a process that is not known", container: null }],
  ],
  ["no listener", "ESTAB 0 0 10.0.0.1:22 10.0.0.2:5000", []],
  ["a heading", "State Recv-Q Send-Q Local Address:Port Peer Address:Port Process", []],
  ["nothing", "\n\n", []],
])("listeners: %s", (_, line, expected) => {
  expect(readListeners(line)).toEqual(expected);
});

test("listeners: several lines, the last one cut", () => {
  const text = `${listenersText}LISTEN 0 4096 0.0.0.0:80`;
  expect(readListeners(text)).toEqual(facts.listeners);
});

const text = z.string().nullable();
const count = z.int().min(0).nullable();
const diskShape = z.strictObject({ path: z.string(), totalBytes: count, freeBytes: count }).nullable();
/** Every fact there, and none besides. */
const shape = z.strictObject({
  hostname: text,
  hostnameAddresses: z.array(z.string()).nullable(),
  productName: text,
  architecture: text,
  operatingSystem: text,
  dgxRelease: text,
  kernel: text,
  cpus: count,
  clockSkewSeconds: z.number().nullable(),
  gpu: z
    .strictObject({
      name: text,
      driverVersion: text,
      cudaVersion: text,
      computeCapability: text,
      busId: text,
      memoryTotalBytes: count,
    })
    .nullable(),
  gpuProcesses: z
    .array(z.strictObject({ pid: z.int().min(0), name: z.string(), memoryBytes: count, container: text }))
    .nullable(),
  cudaToolkitVersion: text,
  memory: z.strictObject({
    totalBytes: count,
    availableBytes: count,
    freeBytes: count,
    pageCacheBytes: count,
    swapTotalBytes: count,
    swapFreeBytes: count,
    cmaTotalBytes: count,
    cmaFreeBytes: count,
  }),
  imageDisk: diskShape,
  modelDisk: diskShape,
  docker: z.strictObject({
    version: text,
    hasNvidiaRuntime: z.boolean().nullable(),
    failure: z.enum(["missing", "denied", "down"]).nullable(),
    complaint: text,
  }),
  interfaces: z.array(
    z.strictObject({
      name: z.string(),
      up: z.boolean(),
      mtuBytes: count,
      speedMbps: count,
      addresses: z.array(z.strictObject({ address: z.string(), prefix: z.int().min(0).max(128) })),
    }),
  ),
  defaultRouteInterfaces: z.array(z.string()),
  rdmaDevices: z.array(
    z.strictObject({
      name: z.string(),
      firmware: text,
      netdevs: z.array(z.string()),
      portState: text,
      rateGbps: z.number().min(0).nullable(),
      activeMtuBytes: count,
      gids: z.array(
        z.strictObject({ index: z.int().min(0), gid: z.string(), version: text, address: text, netdev: text }),
      ),
    }),
  ),
  listeners: z.array(z.strictObject({ address: z.string(), port: z.int().min(0), owner: z.string(), container: text })),
  containers: z
    .array(
      z.strictObject({
        id: z.string(),
        name: z.string(),
        running: z.boolean(),
        deployment: text,
        memoryBytes: count,
      }),
    )
    .nullable(),
  images: z.array(z.string()).nullable(),
  notes: z.array(z.string()),
});

/** All strings and numbers of a JSON value, and of JSON in its strings. */
function parts(value: unknown): string[] {
  if (typeof value === "string") {
    return [
      value,
      ...value
        .split("\n")
        .concat(value)
        .flatMap((line) => (/^\s*[[{]/.test(line) ? inJson(line) : [])),
    ];
  }
  if (typeof value === "number") return [String(value)];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => [key, ...parts(inner)]);
}

function inJson(line: string): string[] {
  try {
    return parts(JSON.parse(line));
  } catch {
    return [];
  }
}

const ownWords = /^(?:container |a process of (?:root|user )|a process that is not known)| \(pid |\)$/g;

/** What of the facts was not in the input. Left out: what is counted from several values, and this program's own words. */
function invented({ clockSkewSeconds, docker, memory, ...rest }: NodeFacts, input: string): unknown[] {
  const all = [input, ...inJson(input)].join("\n");
  const numbers = new Set<number>();
  for (const [digits] of all.matchAll(/\d+(?:\.\d+)?/g)) {
    for (const unit of [1, kibibyte, mebibyte]) numbers.add(Number(digits) * unit);
  }
  for (const [digits] of all.matchAll(/\d+/g)) numbers.add(Number(digits));
  const strange = (value: unknown, key: string): unknown[] => {
    if (typeof value === "string") {
      if (key === "owner") return value.split(ownWords).every((word) => all.includes(word)) ? [] : [value];
      return all.includes(value) ? [] : [value];
    }
    if (typeof value === "number") return numbers.has(value) ? [] : [value];
    if (typeof value !== "object" || value === null) return [];
    // Of a GID the address is its last bytes.
    return Object.entries(value).flatMap(([name, inner]) =>
      "gid" in value && name === "address" ? [] : strange(inner, name),
    );
  };
  const { pageCacheBytes, ...read } = memory;
  const sums = pageCacheBytes === null ? [] : [pageCacheBytes % kibibyte];
  return [
    ...strange({ ...rest, notes: [], memory: read, version: docker.version }, ""),
    ...sums.filter((remainder) => remainder !== 0),
    ...(clockSkewSeconds === null || all.includes(".") ? [] : [clockSkewSeconds]),
  ];
}

const judged = (input: string) => {
  const read = readFacts(input, asked);
  expect(shape.parse(read)).toEqual(read);
  expect(invented(read, input)).toEqual([]);
};

test("any text and any JSON is read, and nothing invented", () => {
  fc.assert(fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.json()), judged), { numRuns: 200 });
});

test("any JSON in any place is read, and nothing invented", () => {
  const places = Object.keys(busy) as (keyof Gathered)[];
  fc.assert(
    fc.property(fc.constantFrom(...places), fc.jsonValue(), (place, value) => {
      judged(JSON.stringify({ ...busy, [place]: value }));
    }),
    { numRuns: 200 },
  );
});

test("real facts with bytes changed, lines lost and doubled are read, and nothing invented", () => {
  fc.assert(fc.property(mutated([JSON.stringify(busy, null, 1)]), judged), { numRuns: 200 });
});

test.each(Object.keys(busy.commands))("whatever %s prints is read, and nothing invented", (command) => {
  const real = busy.commands[command]?.stdout ?? "";
  fc.assert(
    fc.property(mutated([real]), (stdout) => {
      judged(JSON.stringify({ ...busy, commands: { ...busy.commands, [command]: prints(stdout) } }));
    }),
    { numRuns: 50 },
  );
});

test("the property finds out what is invented", () => {
  const input = JSON.stringify(busy);
  const wrong = { ...facts, hostname: "spark-zz", cpus: 77, clockSkewSeconds: 0 };
  expect(invented(wrong, input)).toEqual(["spark-zz", 77]);
});

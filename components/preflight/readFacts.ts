import { z } from "zod";
import type { ContainerFacts, Docker, Gpu, GpuProcess, NodeFacts, RdmaDevice } from "./facts";
import { readDgxRelease, readMeminfo, readNvcc, readOsRelease } from "./readers/host";
import { readListeners } from "./readers/listeners";
import { nvidiaSmiFailure, readComputeApps, readGpuQuery, readNvidiaSmi } from "./readers/nvidiaSmi";
import { readIbvDevinfo, readRateState } from "./readers/rdma";

const text = z.string().nullable().catch(null);
const count = z.int().min(0).nullable().catch(null);
const outputSchema = z.object({ code: z.int().nullable(), stdout: z.string(), stderr: z.string() });
type Output = z.output<typeof outputSchema>;
const diskSchema = z.object({ path: z.string(), totalBytes: count, freeBytes: count }).nullable().catch(null);
const list = <T extends z.ZodType>(type: T) =>
  z
    .array(z.unknown())
    .catch([])
    .transform((items) => items.flatMap((item) => type.safeParse(item).data ?? []) as z.output<T>[]);

/** What `scripts/remote/facts.py` prints. Whatever is not as it should be counts as absent. */
const gatheredSchema = z.object({
  commands: z.record(z.string(), outputSchema.optional().catch(undefined)).catch({}),
  files: z.record(z.string(), text).catch({}),
  hasNvidiaHook: z.boolean().nullable().catch(null),
  hostname: text,
  architecture: text,
  cpus: count,
  resolved: z.array(z.string()).nullable().catch(null),
  speeds: z.record(z.string(), text).catch({}),
  rdma: list(
    z.object({
      name: z.string(),
      firmware: text,
      netdevs: list(z.string()),
      ports: list(
        z.object({
          state: text,
          rate: text,
          gids: list(z.object({ index: z.string(), gid: z.string(), type: text, netdev: text })),
        }),
      ),
    }),
  ),
  imageDisk: diskSchema,
  modelDisk: diskSchema,
  containerOfProcess: z.record(z.string(), z.string()).catch({}),
  containerMemoryBytes: z.record(z.string(), count).catch({}),
});
type Gathered = z.output<typeof gatheredSchema>;

/** Of `ip -json address`. */
const interfaceSchema = z.object({
  ifname: z.string(),
  flags: list(z.string()),
  mtu: count,
  addr_info: list(z.object({ local: z.string(), prefixlen: z.int().min(0).max(128) })),
});
const routeSchema = z.object({ dev: z.string() });
const dockerSchema = z.object({ version: z.string().min(1), runtimes: z.record(z.string(), z.unknown()).nullable() });
const containerSchema = z.object({
  id: z.string(),
  name: z.string(),
  state: z.string(),
  deployment: z.string().catch(""),
});

/** The value that a text of JSON stands for; undefined: it is none. */
export function json(value: string): unknown {
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}

/**
 * Makes facts of what `facts.py` gathered on a node. Takes anything: what can't be read is null, empty, or a note.
 *
 * @param gathered the script's stdout
 * @param asked when the operator's clock showed what as the question was sent and as the answer came, seconds
 */
export function readFacts(gathered: string, asked: { sentAt: number; answeredAt: number }): NodeFacts {
  const raw = gatheredSchema.safeParse(json(gathered)).data ?? gatheredSchema.parse({});
  const stdout = (command: string) => answerOf(raw.commands[command]) ?? "";
  const docker = dockerOf(raw);
  const containers = containersOf(raw, docker);
  // Not asked for where the disk has room for the image.
  const images = raw.commands["images"] === undefined ? "" : answerOf(raw.commands["images"]);
  const osRelease = readOsRelease(raw.files["/etc/os-release"] ?? "");
  const dgxRelease = readDgxRelease(raw.files["/etc/dgx-release"] ?? "");
  return {
    hostname: raw.hostname,
    hostnameAddresses: raw.resolved,
    productName: trimmed(raw.files["/sys/class/dmi/id/product_name"]),
    architecture: raw.architecture,
    operatingSystem: osRelease.name,
    dgxRelease: dgxRelease.otaVersion ?? dgxRelease.version,
    kernel: trimmed(raw.files["/proc/sys/kernel/osrelease"]),
    cpus: raw.cpus,
    clockSkewSeconds: clockSkew(stdout("date"), asked),
    gpu: gpuOf(raw),
    gpuProcesses: gpuProcessesOf(raw),
    cudaToolkitVersion: readNvcc(stdout("nvcc")),
    memory: readMeminfo(raw.files["/proc/meminfo"] ?? ""),
    imageDisk: raw.imageDisk,
    modelDisk: raw.modelDisk,
    docker,
    interfaces: list(interfaceSchema)
      .parse(json(stdout("ipAddress")))
      .map(({ ifname, flags, mtu, addr_info: addresses }) => ({
        name: ifname,
        up: flags.includes("UP") && flags.includes("LOWER_UP"),
        mtuBytes: mtu,
        speedMbps: positiveNumber(own(raw.speeds, ifname)),
        addresses: addresses.map(({ local, prefixlen }) => ({ address: local, prefix: prefixlen })),
      })),
    defaultRouteInterfaces: list(routeSchema)
      .parse(json(stdout("route")))
      .map(({ dev }) => dev),
    rdmaDevices: rdmaDevices(raw),
    listeners: readListeners(stdout("listeners")),
    containers,
    images: images?.split(/\s+/).filter((name) => name !== "") ?? null,
    notes: notes(raw, {
      ...gaps,
      ...(containers === null && { containers: ["the containers", "docker"] }),
      ...(images === null && { images: ["the images", "docker"] }),
    }),
  };
}

/** What a program printed; null: it failed, or did not answer. */
function answerOf(output: Output | undefined): string | null {
  return output?.code === 0 ? output.stdout : null;
}

/** Whether a program is not there. One that did not start has no exit code, as one that was too slow has none. */
function isAbsent(output: Output | undefined): boolean {
  return output?.code === null && /no such file/i.test(output.stderr);
}

/** Whether a program is there and was too slow, in the words of `facts.py`. */
function isLate(output: Output | undefined): boolean {
  return output?.code === null && output.stderr.startsWith("no answer within");
}

/** A value by a name that the node chose, which may be that of a method of every object. */
function own<T>(record: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(record, key) ? record[key] : undefined;
}

function trimmed(value: string | null | undefined): string | null {
  return value?.trim() || null;
}

/** A number above 0; sysfs says -1 for a speed that is not known. */
function positiveNumber(value: string | null | undefined): number | null {
  return /^[1-9]\d{0,8}$/.test(value?.trim() ?? "") ? Number(value) : null;
}

function jsonLines<T extends z.ZodType>(lines: string, type: T): z.output<T>[] {
  return list(type).parse(lines.split("\n").map(json));
}

/** How far the node's clock is outside the time in which it was asked. */
function clockSkew(date: string, { sentAt, answeredAt }: { sentAt: number; answeredAt: number }): number | null {
  if (!/^\d{1,12}\.\d+\n?$/.test(date)) return null;
  const then = Number(date);
  const outside = then < sentAt ? then - sentAt : Math.max(0, then - answeredAt);
  // Without -0.
  return Math.round(outside * 10) / 10 + 0;
}

function gpuOf({ commands: { gpuQuery, nvidiaSmi } }: Gathered): Gpu | null {
  const fields = ["index", "name", "busId", "driverVersion", "computeCapability", "memory"] as const;
  const [first] = readGpuQuery(answerOf(gpuQuery) ?? "", fields);
  const shown = readNvidiaSmi(answerOf(nvidiaSmi) ?? "");
  const [shownGpu] = shown.gpus;
  const isKnown = first !== undefined || shownGpu !== undefined;
  if (!isKnown && !(isLate(gpuQuery) && isLate(nvidiaSmi))) return null;
  const mebibytes = /^(\d+) MiB$/.exec(first?.["memory"] ?? "")?.[1];
  return {
    name: first?.["name"] ?? shownGpu?.name ?? null,
    driverVersion: first?.["driverVersion"] ?? shown.driverVersion,
    cudaVersion: shown.cudaVersion,
    computeCapability: first?.["computeCapability"] ?? null,
    busId: first?.["busId"] ?? shownGpu?.busId ?? null,
    memoryTotalBytes: mebibytes === undefined ? null : Number(mebibytes) * 1024 ** 2,
  };
}

function gpuProcessesOf({ commands: { computeApps }, containerOfProcess }: Gathered): GpuProcess[] | null {
  // Without a driver's programs there is nothing to use.
  const answer = isAbsent(computeApps) ? "" : answerOf(computeApps);
  if (answer === null) return null;
  return readComputeApps(answer).map((process) => ({
    ...process,
    container: own(containerOfProcess, String(process.pid)) ?? null,
  }));
}

function dockerOf({ commands: { dockerInfo, containers }, hasNvidiaHook }: Gathered): Docker {
  const info = dockerSchema.safeParse(json(dockerInfo?.stdout ?? "")).data;
  if (dockerInfo?.code === 0 && info !== undefined) {
    // `--gpus` needs the hook; the runtime comes with it, and is often the only one of the two that is known here.
    const hasRuntime = info.runtimes === null ? null : "nvidia" in info.runtimes;
    const hasNvidiaRuntime = hasNvidiaHook === true ? true : hasRuntime;
    return { version: info.version, hasNvidiaRuntime, failure: null, complaint: null };
  }
  // Docker 20's `info` breaks at its template before it tells why; `ps` tells.
  const ps = answerOf(containers) === null ? containers?.stderr : "";
  const said = [dockerInfo?.stderr, ps].flatMap((each) => each?.trim().split("\n") ?? []).filter((line) => line !== "");
  // The client is also denied files of its own, and goes on.
  const denial = said.find((line) =>
    /permission denied while trying to connect|dial unix .*permission denied/i.test(line),
  );
  const failure = isAbsent(dockerInfo) ? "missing" : denial !== undefined ? "denied" : "down";
  return { version: null, hasNvidiaRuntime: null, failure, complaint: denial ?? said.at(-1) ?? null };
}

function containersOf(
  { commands: { containers }, containerMemoryBytes }: Gathered,
  docker: Docker,
): ContainerFacts[] | null {
  // Where Docker refuses, none of ours runs; of one that is too slow that is not known.
  const refuses = docker.failure !== null && containers !== undefined && !isLate(containers);
  const answer = answerOf(containers) ?? (refuses ? "" : null);
  if (answer === null) return null;
  return jsonLines(answer, containerSchema).map(({ id, name, state, deployment }) => ({
    id,
    name,
    running: ["running", "paused", "restarting"].includes(state),
    deployment: deployment === "" ? null : deployment,
    memoryBytes: own(containerMemoryBytes, id) ?? null,
  }));
}

function rdmaDevices(raw: Gathered): RdmaDevice[] {
  const details = readIbvDevinfo(raw.commands["ibvDevinfo"]?.stdout ?? "");
  return raw.rdma.map(({ name, firmware, netdevs, ports: [port] }) => {
    const [rate] = readRateState(port?.rate ?? "");
    return {
      name,
      firmware: trimmed(firmware),
      netdevs,
      // "4: ACTIVE"
      portState: /^\d+: (\S+)/.exec(port?.state ?? "")?.[1] ?? null,
      rateGbps: rate?.rateGbps ?? null,
      activeMtuBytes: details.find(({ device }) => device === name)?.ports[0]?.activeMtuBytes ?? null,
      gids: (port?.gids ?? [])
        .filter(({ index }) => /^\d{1,4}$/.test(index))
        .map(({ index, gid, type, netdev }) => ({
          index: Number(index),
          gid,
          version: trimmed(type),
          address: mappedAddress(gid),
          netdev: trimmed(netdev),
        }))
        .sort((a, b) => a.index - b.index),
    };
  });
}

/** The IPv4 address that a GID stands for: the last four bytes of `0000:…:ffff:c0a8:c80c`. */
function mappedAddress(gid: string): string | null {
  const [, high, low] = /^(?:0{4}:){5}ffff:([0-9a-f]{4}):([0-9a-f]{4})$/.exec(gid.toLowerCase()) ?? [];
  if (high === undefined || low === undefined) return null;
  const bytes = [high.slice(0, 2), high.slice(2), low.slice(0, 2), low.slice(2)];
  return bytes.map((byte) => parseInt(byte, 16)).join(".");
}

/** Programs whose absence or failure leaves a gap: what is not known then, and their names. Of Docker's its `failure` tells. */
const gaps: Readonly<Record<string, readonly [string, string]>> = {
  nvidiaSmi: ["the GPU", "nvidia-smi"],
  computeApps: ["what uses the GPU", "nvidia-smi"],
  ibvDevinfo: ["the MTU that RDMA uses", "ibv_devinfo"],
  nvcc: ["the CUDA toolkit's version", "nvcc"],
  ipAddress: ["the network interfaces", "ip"],
  route: ["the default route", "ip"],
  listeners: ["the ports in use", "ss"],
  date: ["the clock", "date"],
};
/** Those that print JSON, which tells nothing once it is cut. */
const inJson = ["ipAddress", "route"];

function notes(raw: Gathered, asked: typeof gaps): string[] {
  const ofName =
    raw.hostname !== null && raw.resolved === null
      ? ["what its own name resolves to: not known (no answer in time)"]
      : [];
  const ofPrograms = Object.entries(asked).flatMap(([command, [gap, program]]) => {
    const output = raw.commands[command];
    const unreadable = inJson.includes(command) && !Array.isArray(json(output?.stdout ?? ""));
    if (output?.code === 0) return unreadable ? [`${gap}: not known (its output can't be read)`] : [];
    if (isAbsent(output)) return [`${gap}: not known (no program ${program})`];
    const failure = nvidiaSmiFailure(output?.stdout ?? "") ?? output?.stderr.trim().split("\n").at(-1);
    return [`${gap}: not known (${failure || "no output"})`];
  });
  return [...ofPrograms, ...ofName];
}

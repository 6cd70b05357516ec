import type { Memory } from "./readers/host";
import type { Listener } from "./readers/listeners";
import type { ComputeApp } from "./readers/nvidiaSmi";

/** What is known of one Spark. `null`: not known there, and `notes` may say why. */
export interface NodeFacts {
  hostname: string | null;
  /** Addresses that the machine's own name resolves to on it. */
  hostnameAddresses: string[] | null;
  /** As the maker calls the machine, e.g. `NVIDIA_DGX_Spark`. */
  productName: string | null;
  /** `aarch64` on a Spark. */
  architecture: string | null;
  operatingSystem: string | null;
  /** Release of DGX OS, the last update counted. */
  dgxRelease: string | null;
  kernel: string | null;
  cpus: number | null;
  /** The node's clock against the operator's, seconds; 0: not apart by more than the time the question took. */
  clockSkewSeconds: number | null;
  /** Null: the driver shows none. Of one that did not answer in time all is null in it. */
  gpu: Gpu | null;
  /** What uses the GPU. */
  gpuProcesses: GpuProcess[] | null;
  /** Of the toolkit (`nvcc`) on the host; the image brings its own. */
  cudaToolkitVersion: string | null;
  memory: Memory;
  /** Disk of Docker's images. */
  imageDisk: Disk | null;
  /** Disk of the model's folder. */
  modelDisk: Disk | null;
  docker: Docker;
  interfaces: NetworkInterface[];
  /** Interfaces with a default route. */
  defaultRouteInterfaces: string[];
  rdmaDevices: RdmaDevice[];
  listeners: Listener[];
  containers: ContainerFacts[] | null;
  /** Names of the images that are there, `repository:tag`, `repository@digest` and id; none where the disk has room for the image in any case. */
  images: string[] | null;
  /** What could not be read, and why. */
  notes: string[];
}

export interface Gpu {
  name: string | null;
  driverVersion: string | null;
  cudaVersion: string | null;
  computeCapability: string | null;
  busId: string | null;
  /** Null on GB10, whose memory is the machine's. */
  memoryTotalBytes: number | null;
}

export interface GpuProcess extends ComputeApp {
  /** Id of the container it runs in; empty: in none. */
  container: string | null;
}

export interface Disk {
  path: string;
  totalBytes: number | null;
  freeBytes: number | null;
}

export interface Docker {
  /** Null: the daemon did not answer. */
  version: string | null;
  /** Whether containers can be given the GPU; null: not known. */
  hasNvidiaRuntime: boolean | null;
  /** Why the daemon did not answer. */
  failure: "missing" | "denied" | "down" | null;
  /** What it said in place of an answer. */
  complaint: string | null;
}

export interface NetworkInterface {
  name: string;
  /** Whether it is on and has a link. */
  up: boolean;
  mtuBytes: number | null;
  speedMbps: number | null;
  addresses: { address: string; prefix: number }[];
}

export interface RdmaDevice {
  name: string;
  firmware: string | null;
  /** Network interfaces of the same port. */
  netdevs: string[];
  /** E.g. `ACTIVE`, `DOWN`. */
  portState: string | null;
  /** Of the port; one that is down reports a rate too. */
  rateGbps: number | null;
  /** MTU that RDMA uses, at most 4096. */
  activeMtuBytes: number | null;
  gids: { index: number; gid: string; version: string | null; address: string | null; netdev: string | null }[];
}

export interface ContainerFacts {
  id: string;
  name: string;
  /** Whether it holds what it took: it runs, is paused, or is between two starts. */
  running: boolean;
  /** Deployment of this program that it belongs to; null: none. */
  deployment: string | null;
  /** Memory that its end would give back; null: not known. */
  memoryBytes: number | null;
}

/** The lasting facts, for the stack's outputs: what changes from minute to minute is in no output. */
export type MachineFacts = Pick<
  NodeFacts,
  "hostname" | "productName" | "architecture" | "operatingSystem" | "dgxRelease" | "kernel" | "cpus" | "gpu"
> & { memoryTotalBytes: number | null; dockerVersion: string | null };

export function machineFacts(facts: NodeFacts): MachineFacts {
  const { hostname, productName, architecture, operatingSystem, dgxRelease, kernel, cpus, gpu } = facts;
  return {
    ...{ hostname, productName, architecture, operatingSystem, dgxRelease, kernel, cpus, gpu },
    memoryTotalBytes: facts.memory.totalBytes,
    dockerVersion: facts.docker.version,
  };
}

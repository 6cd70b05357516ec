import type { Accelerator } from "./schema";

/** Options of a container that depend on the machine, as `docker.Container` takes them. */
export interface Hardware {
  gpus?: string;
  devices?: { hostPath: string; containerPath: string; permissions: string }[];
  capabilities?: { adds: string[] };
  ulimits?: { name: string; soft: number; hard: number }[];
}

/**
 * What the engine's containers need of the machine.
 * On a Spark: the GPU, the InfiniBand devices, and memory that RDMA may pin. Without the last three NCCL falls back to sockets.
 */
export function hardware(accelerator: Accelerator): Hardware {
  switch (accelerator) {
    case "gb10":
      return {
        gpus: "all",
        devices: [{ hostPath: "/dev/infiniband", containerPath: "/dev/infiniband", permissions: "rwm" }],
        capabilities: { adds: ["IPC_LOCK"] },
        ulimits: [
          { name: "memlock", soft: -1, hard: -1 },
          { name: "stack", soft: 67108864, hard: 67108864 },
        ],
      };
    case "cpu":
      return {};
    default:
      return accelerator satisfies never;
  }
}

/** Variables as Docker takes them, in a fixed order. */
export function environmentList(environment: Readonly<Record<string, string>>): string[] {
  return Object.entries(environment)
    .map(([name, value]) => `${name}=${value}`)
    .sort();
}

/** Name of a container or volume of the deployment. */
export function containerName(deployment: string, role: "ray" | "server" | "session"): string {
  return `dgx-spark-${deployment}-${role}`;
}

/**
 * The name of the image on every node. The digest does not travel with a copied image, so it goes by a tag of ours,
 * known before anything ran.
 */
export function localTag(deployment: string, reference: string): string {
  const digest = reference.slice(reference.lastIndexOf(":") + 1);
  return `dgx-spark-serving:${deployment}-${digest.slice(0, 12)}`;
}

/** Folder of a deployment on a node, relative to the user's home. */
export function nodeDirectory(deployment: string): string {
  return `.dgx-spark-serving-${deployment}`;
}

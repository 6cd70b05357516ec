import type { Settings } from "./schema";

/** vLLM's own default of `--gpu-memory-utilization`. */
const defaultUtilization = 0.9;

/** A rank on CPU (PyTorch, vLLM, the lab's tiny model). */
const cpuRankBytes = 2 * 1024 ** 3;

/** Memory that the engine takes on each node. */
export interface MemoryDemand {
  /** Share of the machine's memory, 0 to 1. */
  share: number;
  /** At least so much, bytes. */
  atLeastBytes: number;
}

/** What the engine will ask for, from the settings. */
export function memoryDemand({ accelerator, server }: Pick<Settings, "accelerator" | "server">): MemoryDemand {
  return accelerator === "cpu"
    ? { share: server.gpuMemoryUtilization ?? 0, atLeastBytes: cpuRankBytes }
    : { share: server.gpuMemoryUtilization ?? defaultUtilization, atLeastBytes: 0 };
}

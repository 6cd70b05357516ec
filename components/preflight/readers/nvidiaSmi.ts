import { numberIn, wordIn } from "./words";

/** What `nvidia-smi` tells. Memory is in bytes; null stands for what the text does not tell. */
export interface NvidiaSmi extends NvidiaVersions {
  gpus: Gpu[];
  processes: GpuProcess[];
}

export interface NvidiaVersions {
  /** Two parts or three: `580.142`, `580.95.05`. */
  driverVersion: string | null;
  /** The newest CUDA that this driver runs, e.g. `13.0`. */
  cudaVersion: string | null;
}

export interface Gpu {
  name: string;
  busId: string;
  temperatureCelsius: number | null;
  powerWatts: number | null;
  /** Null on a Spark, whose GPU has no memory of its own: the processes are all that is told. */
  memoryUsedBytes: number | null;
  /** Null on a Spark, like `memoryUsedBytes`. */
  memoryTotalBytes: number | null;
  utilizationPercent: number | null;
}

export interface ComputeApp {
  pid: number;
  /** As printed: the table cuts long names at their beginning, `.../usr/lib/firefox/firefox`. */
  name: string;
  memoryBytes: number | null;
}

export interface GpuProcess extends ComputeApp {
  /** `C` computes, `G` draws, `C+G` does both. */
  type: string;
}

const mebibyte = 1024 ** 2;

// A GPU has two rows: this one, and right below it the one with its numbers. A third one (MIG) is not always there.
const gpuRow =
  /^\|\s+\d+\s+(\S.*?)\s+(?:On|Off|N\/A)\s+\|\s+([0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F])\s[^|]*\|[^|]*\|\s*$/i;
const numbersRow = /^\|([^|]*)\|([^|]*)\|([^|]*)\|\s*$/;
const processRow =
  /^\|\s+\d+\s+\S+\s+\S+\s+(\d{1,10})\s+([A-Z+]+)\s+(\S.*?)\s+(?:(\d{1,9})MiB|N\/A|Not Supported)\s*\|\s*$/;

/** Reads the table of `nvidia-smi`, by its rows' shape: the date, a row or the whole process table may be missing. */
export function readNvidiaSmi(text: string): NvidiaSmi {
  const lines = text.split(/\r?\n/);
  const gpus = lines.flatMap((line, index): Gpu[] => {
    const [, name, busId] = gpuRow.exec(line) ?? [];
    if (name === undefined || busId === undefined) return [];
    const [, state = "", memory = "", load = ""] = numbersRow.exec(lines[index + 1] ?? "") ?? [];
    return [
      {
        name,
        busId,
        temperatureCelsius: numberIn(state, /\s(\d{1,3})C\s/),
        powerWatts: numberIn(state, /\s(\d{1,4})W\s*\//),
        memoryUsedBytes: numberIn(memory, /^\s*(\d{1,9})MiB\s*\//, mebibyte),
        memoryTotalBytes: numberIn(memory, /\/\s*(\d{1,9})MiB\s*$/, mebibyte),
        utilizationPercent: numberIn(load, /^\s*(\d{1,3})%\s/),
      },
    ];
  });
  const processes = lines.flatMap((line): GpuProcess[] => {
    const [, pid, type, name, memory] = processRow.exec(line) ?? [];
    if (pid === undefined || type === undefined || name === undefined) return [];
    return [{ pid: Number(pid), type, name, memoryBytes: memory === undefined ? null : Number(memory) * mebibyte }];
  });
  return { ...readNvidiaSmiVersion(text), gpus, processes };
}

/**
 * Reads `nvidia-smi --version`, and the head of the table: one writes `DRIVER version  :`, the other
 * `Driver Version:`, and drivers from 610 on `KMD Version:` and `CUDA UMD Version:`.
 */
export function readNvidiaSmiVersion(text: string): NvidiaVersions {
  return {
    driverVersion: wordIn(text, /\b(?:Driver|KMD) Version[ \t]*:[ \t]*(\d+(?:\.\d+)+)(?![^\s|])/i),
    cudaVersion: wordIn(text, /\bCUDA(?: UMD)? Version[ \t]*:[ \t]*(\d+\.\d+)(?![^\s|])/i),
  };
}

// nvidia-smi complains on the standard output, where a query of one field would take the sentence for its value.
const complaint =
  /^(?:Failed to initialize NVML|NVML library version|NVIDIA-SMI has failed|No devices|Unable to|Field ")/;

/**
 * Reads `--query-gpu=FIELDS --format=csv,noheader`, with or without `nounits`: one record a GPU, the values as printed.
 * What stands in brackets (`[N/A]`, `[Not Supported]`) is the reason why there is no value: null. A line with another
 * number of values than asked for is no record.
 */
export function readGpuQuery(text: string, fields: readonly string[]): Record<string, string | null>[] {
  return text.split(/\r?\n/).flatMap((line) => {
    const values = line.split(",").map((value) => value.trim());
    if (line.trim() === "" || complaint.test(line) || values.length !== fields.length) return [];
    return [Object.fromEntries(fields.map((field, index) => [field, queried(values[index] ?? "")]))];
  });
}

function queried(value: string): string | null {
  return /^(?:|\[.*\]|N\/A|Not Supported)$/.test(value) ? null : value;
}

/**
 * Reads `--query-compute-apps=pid,process_name,used_memory --format=csv,noheader,nounits`, whose memory is in MiB.
 * The name is all between the first comma and the last: it may hold commas itself.
 */
export function readComputeApps(text: string): ComputeApp[] {
  return text.split(/\r?\n/).flatMap((line): ComputeApp[] => {
    const [, pid, name, memory] =
      /^\s*(\d{1,10}),\s*(\S.*?)\s*,\s*(?:(\d{1,9})|\[[^\]]*\]|N\/A|Not Supported)\s*$/.exec(line) ?? [];
    if (pid === undefined || name === undefined) return [];
    return [{ pid: Number(pid), name, memoryBytes: memory === undefined ? null : Number(memory) * mebibyte }];
  });
}

/**
 * Why nvidia-smi told nothing. `driver-library-mismatch`: the driver was updated under a running kernel, a restart
 * mends it. `no-driver-communication`: no driver is loaded.
 */
export function nvidiaSmiFailure(text: string): "driver-library-mismatch" | "no-driver-communication" | null {
  if (text.includes("Driver/library version mismatch")) return "driver-library-mismatch";
  if (text.includes("couldn't communicate with the NVIDIA driver")) return "no-driver-communication";
  return null;
}

import { numberIn, wordIn } from "./words";

// What a Spark tells of itself. Memory and disks are in bytes; null stands for what the text does not tell.

const kibibyte = 1024;

/** Reads `/etc/dgx-release`. The file also holds the serial number, which is left where it is. */
export function readDgxRelease(text: string): {
  name: string | null;
  platform: string | null;
  /** The image it was delivered with; updates leave it as it is. */
  version: string | null;
  /** The last update installed: each one appends its own lines. Null where there was none. */
  otaVersion: string | null;
} {
  const values = assignments(text);
  return {
    name: values.get("DGX_PRETTY_NAME") ?? values.get("DGX_NAME") ?? null,
    platform: values.get("DGX_PLATFORM") ?? null,
    version: values.get("DGX_SWBUILD_VERSION") ?? null,
    otaVersion: values.get("DGX_OTA_VERSION") ?? null,
  };
}

/** Reads `/etc/os-release`: `Ubuntu 24.04.4 LTS`, `24.04`, `noble`. */
export function readOsRelease(text: string): { name: string | null; version: string | null; codename: string | null } {
  const values = assignments(text);
  return {
    name: values.get("PRETTY_NAME") ?? null,
    version: values.get("VERSION_ID") ?? wordIn(values.get("VERSION") ?? "", /^(\d+(?:\.\d+)*)(?!\S)/),
    codename: values.get("VERSION_CODENAME") ?? values.get("UBUNTU_CODENAME") ?? null,
  };
}

/**
 * The last value of each key. Some makers leave the quotes out even around blanks, so a shell cannot read these files.
 * A value with one quote only was cut: null, for it hides the one before.
 */
function assignments(text: string): Map<string, string | null> {
  const values = new Map<string, string | null>();
  for (const line of text.split(/\r?\n/)) {
    const [, key, value] = /^\s*([A-Z_]+)=(.*?)\s*$/.exec(line) ?? [];
    if (key === undefined || value === undefined) continue;
    const bare = /^(["'])(.*)\1$/.exec(value)?.[2] ?? (/^["']|["']$/.test(value) ? "" : value);
    values.set(key, bare === "" ? null : bare);
  }
  return values;
}

/** Reads `uname -a`: the release of the kernel, and the machine, which stands just before `GNU/Linux`. */
export function readUname(text: string): { kernel: string | null; architecture: string | null } {
  return {
    kernel: wordIn(text, /^Linux \S+ (\d+\.\d+\S*) /m),
    architecture: wordIn(text, /^Linux .* ([a-z]\w*) GNU\/Linux\s*$/m),
  };
}

/** Reads `lscpu`, one model name a kind of core. Its keys are translated: in another language most of it is unknown. */
export function readLscpu(text: string): { cpus: number | null; modelNames: string[]; architecture: string | null } {
  return {
    cpus: numberIn(text, /^CPU\(s\):[ \t]+(\d{1,6})[ \t]*$/m),
    modelNames: [...text.matchAll(/^[ \t]*Model name:[ \t]+(\S.*?)[ \t]*$/gm)].flatMap(([, name]) => name ?? []),
    architecture: wordIn(text, /^Architecture:[ \t]+(\S+)[ \t]*$/m),
  };
}

/** Memory of a machine, bytes; null for what the text does not tell. */
export interface Memory {
  totalBytes: number | null;
  availableBytes: number | null;
  freeBytes: number | null;
  /** Cached and Buffers; null where one of them is missing. */
  pageCacheBytes: number | null;
  swapTotalBytes: number | null;
  swapFreeBytes: number | null;
  /** Of the kernel's contiguous areas (CMA). */
  cmaTotalBytes: number | null;
  cmaFreeBytes: number | null;
}

/** Reads `/proc/meminfo`, whose `kB` are 1024 bytes. Available is what counts: free leaves out what can be dropped. */
export function readMeminfo(text: string): Memory {
  const bytes = (key: string) => numberIn(text, new RegExp(`^${key}:[ \\t]+(\\d{1,12}) kB[ \\t]*$`, "m"), kibibyte);
  const cached = bytes("Cached");
  const buffers = bytes("Buffers");
  return {
    totalBytes: bytes("MemTotal"),
    availableBytes: bytes("MemAvailable"),
    freeBytes: bytes("MemFree"),
    pageCacheBytes: cached === null || buffers === null ? null : cached + buffers,
    swapTotalBytes: bytes("SwapTotal"),
    swapFreeBytes: bytes("SwapFree"),
    cmaTotalBytes: bytes("CmaTotal"),
    cmaFreeBytes: bytes("CmaFree"),
  };
}

/**
 * Reads the memory row of `free -h`, rounded as it is printed. The row's name may be translated under an English
 * header, so it is known by its six sizes: the one for swap has three.
 */
export function readFree(text: string): {
  totalBytes: number | null;
  usedBytes: number | null;
  freeBytes: number | null;
  availableBytes: number | null;
} {
  const lines = text.split(/\r?\n/);
  const header = lines.findIndex((line) => /^\s*total\s+used\s+free\s+shared\s+buff\/cache\s+available\s*$/.test(line));
  const rows = header < 0 ? [] : lines.slice(header + 1);
  // A size must have its unit: without `-h` the numbers would be kibibytes.
  const sizes = rows
    .map((row) => row.match(/(?<=\s)\d{1,4}(?:\.\d)?(?:B|[KMGTP]i)(?!\S)/g) ?? [])
    .find((found) => found.length === 6);
  const [total, used, free, , , available] = sizes ?? [];
  return {
    totalBytes: bytesOf(total),
    usedBytes: bytesOf(used),
    freeBytes: bytesOf(free),
    availableBytes: bytesOf(available),
  };
}

/**
 * Reads `df -h`, `df -k` and `df -B1`: the header tells the unit, and without it there is no row. Sizes of `-h` are
 * rounded as they are printed; `-` is null.
 */
export function readDf(text: string): {
  filesystem: string;
  sizeBytes: number | null;
  usedBytes: number | null;
  availableBytes: number | null;
  mountpoint: string;
}[] {
  const column = wordIn(text, /^Filesystem[ \t]+(Size|1B-blocks|1K-blocks|1024-blocks)[ \t]+Used[ \t]+Avail/m);
  if (column === null) return [];
  const block = /^1(?:K|024)-/.test(column) ? kibibyte : 1;
  const size = String.raw`(\d{1,15}|\d{1,4}(?:\.\d)?[KMGTP]|-)`;
  const row = new RegExp(String.raw`^(\S.*?)\s+${size}\s+${size}\s+${size}\s+(?:\d+%|-)\s+(/.*)$`);
  return text.split(/\r?\n/).flatMap((line) => {
    const [, filesystem, total, used, available, mountpoint] = row.exec(line) ?? [];
    if (filesystem === undefined || mountpoint === undefined) return [];
    return {
      filesystem,
      sizeBytes: bytesOf(total, block),
      usedBytes: bytesOf(used, block),
      availableBytes: bytesOf(available, block),
      mountpoint,
    };
  });
}

/** Reads the release of `nvcc --version`, e.g. `13.0`. */
export function readNvcc(text: string): string | null {
  return wordIn(text, /\brelease (\d+\.\d+),/);
}

/** Reads the version of `nvidia-ctk --version`, e.g. `1.20.1`. */
export function readNvidiaCtk(text: string): string | null {
  return wordIn(text, /NVIDIA Container Toolkit CLI version (\d\S*)/);
}

/** Reads the runtimes in `docker info`; whether `nvidia` is among them decides if a container sees the GPU. */
export function readDockerRuntimes(text: string): { runtimes: string[]; default: string | null } {
  return {
    runtimes: wordIn(text, /^[ \t]*Runtimes:[ \t]+(\S.*)$/m)?.match(/\S+/g) ?? [],
    default: wordIn(text, /^[ \t]*Default Runtime:[ \t]+(\S+)[ \t]*$/m),
  };
}

/** A size like `3.5Gi`, `916G`, `0B` or a bare number of blocks. */
function bytesOf(size = "", block = 1): number | null {
  const [, number, unit = ""] = /^(\d+(?:\.\d)?)([BKMGTP]?)/.exec(size) ?? [];
  return number === undefined ? null : Math.round(Number(number) * kibibyte ** "BKMGTP".indexOf(unit || "B")) * block;
}

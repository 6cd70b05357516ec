import fs from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  readDf,
  readDgxRelease,
  readDockerRuntimes,
  readFree,
  readLscpu,
  readMeminfo,
  readNvcc,
  readNvidiaCtk,
  readOsRelease,
  readUname,
} from "../../../components/preflight/readers/host";
import { mutated } from "./mutated";

const folder = "test/fixtures/host";
const fixture = (name: string) => fs.readFileSync(`${folder}/${name}`, "utf8");
const kibibyte = 1024;
const mebibyte = 1024 ** 2;
const gibibyte = 1024 ** 3;

const disk = (filesystem: string, [size, used, available]: readonly [number, number, number], mountpoint: string) => ({
  filesystem,
  sizeBytes: size,
  usedBytes: used,
  availableBytes: available,
  mountpoint,
});
const noMemory = { totalBytes: null, usedBytes: null, freeBytes: null, availableBytes: null };

const expected: Record<string, [read: (text: string) => unknown, value: unknown]> = {
  "dgx-release-gx10-four-updates.txt": [
    readDgxRelease,
    { name: "NVIDIA DGX Spark", platform: "GX10", version: "7.2.3", otaVersion: "7.6.0" },
  ],
  "dgx-release-hp-unquoted.txt": [
    readDgxRelease,
    { name: "NVIDIA DGX Spark", platform: "HP ZGX Nano G1n AI Station", version: "7.2.3", otaVersion: "7.5.0" },
  ],
  "os-release-24.04.4.txt": [readOsRelease, { name: "Ubuntu 24.04.4 LTS", version: "24.04", codename: "noble" }],
  "uname-a-pgx.txt": [readUname, { kernel: "6.17.0-1021-nvidia", architecture: "aarch64" }],
  "lscpu-gx10.txt": [readLscpu, { cpus: 20, modelNames: ["Cortex-X925", "Cortex-A725"], architecture: "aarch64" }],
  "lscpu-german-locale.txt": [readLscpu, { cpus: 20, modelNames: [], architecture: null }],
  "free-h-two-engines.txt": [
    readFree,
    {
      totalBytes: 121 * gibibyte,
      usedBytes: 105 * gibibyte,
      freeBytes: Math.round(1.4 * gibibyte),
      availableBytes: 16 * gibibyte,
    },
  ],
  "free-h-chinese-locale.txt": [
    readFree,
    {
      totalBytes: 121 * gibibyte,
      usedBytes: 117 * gibibyte,
      freeBytes: Math.round(2.6 * gibibyte),
      availableBytes: Math.round(4.1 * gibibyte),
    },
  ],
  "meminfo-after-stop.txt": [
    readMeminfo,
    {
      totalBytes: 127598764 * kibibyte,
      availableBytes: 38911204 * kibibyte,
      freeBytes: 2870412 * kibibyte,
      pageCacheBytes: (36688920 + 15064) * kibibyte,
      swapTotalBytes: null,
      swapFreeBytes: null,
      cmaTotalBytes: 131072 * kibibyte,
      cmaFreeBytes: 70128 * kibibyte,
    },
  ],
  "df-h-1tb.txt": [
    readDf,
    [
      disk("tmpfs", [12 * gibibyte, Math.round(8.7 * mebibyte), 12 * gibibyte], "/run"),
      disk("efivarfs", [256 * kibibyte, 41 * kibibyte, 216 * kibibyte], "/sys/firmware/efi/efivars"),
      disk("/dev/nvme0n1p2", [916 * gibibyte, 402 * gibibyte, 468 * gibibyte], "/"),
      disk("tmpfs", [60 * gibibyte, 0, 60 * gibibyte], "/dev/shm"),
      disk("tmpfs", [5 * mebibyte, 4 * kibibyte, 5 * mebibyte], "/run/lock"),
      disk("/dev/nvme0n1p1", [511 * mebibyte, 14 * mebibyte, 498 * mebibyte], "/boot/efi"),
      disk("tmpfs", [12 * gibibyte, 168 * kibibyte, 12 * gibibyte], "/run/user/1001"),
    ],
  ],
  "nvcc-version-13.0.txt": [readNvcc, "13.0"],
  "nvidia-ctk-version.txt": [readNvidiaCtk, "1.20.1"],
  "docker-info-runtimes-grep.txt": [
    readDockerRuntimes,
    { runtimes: ["nvidia", "runc", "io.containerd.runc.v2"], default: "runc" },
  ],
};
const fixtures = Object.keys(expected);

test("every fixture is read by a test", () => {
  expect(fs.readdirSync(folder).sort()).toEqual(fixtures.sort());
});

test.each(Object.entries(expected))("%s", (name, [read, value]) => {
  expect(read(fixture(name))).toEqual(value);
  expect(read(fixture(name).replaceAll("\n", "\r\n"))).toEqual(value);
});

test.each<[string, (text: string) => unknown, unknown]>([
  ["readDgxRelease", readDgxRelease, { name: null, platform: null, version: null, otaVersion: null }],
  ["readOsRelease", readOsRelease, { name: null, version: null, codename: null }],
  ["readUname", readUname, { kernel: null, architecture: null }],
  ["readLscpu", readLscpu, { cpus: null, modelNames: [], architecture: null }],
  [
    "readMeminfo",
    readMeminfo,
    {
      totalBytes: null,
      availableBytes: null,
      freeBytes: null,
      pageCacheBytes: null,
      swapTotalBytes: null,
      swapFreeBytes: null,
      cmaTotalBytes: null,
      cmaFreeBytes: null,
    },
  ],
  ["readFree", readFree, noMemory],
  ["readDf", readDf, []],
  ["readNvcc", readNvcc, null],
  ["readNvidiaCtk", readNvidiaCtk, null],
  ["readDockerRuntimes", readDockerRuntimes, { runtimes: [], default: null }],
])("%s knows nothing of another text", (_, read, nothing) => {
  for (const text of ["", "\n\n", "bash: command not found", "Permission denied (publickey)."]) {
    expect(read(text)).toEqual(nothing);
  }
});

test.each([
  ["no update yet", 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n', ["DGX Spark", "7.2.3", null]],
  ["an empty value", "DGX_OTA_VERSION=\nDGX_SWBUILD_VERSION=''\n", [null, null, null]],
  ["a last update cut off", 'DGX_OTA_VERSION="7.5.0"\nDGX_OTA_VERSION="7.', [null, null, null]],
  ["another key with the same end", "OLD_DGX_OTA_VERSION=1\n#DGX_NAME=x\n", [null, null, null]],
])("dgx-release: %s", (_, text, [name, version, otaVersion]) => {
  expect(readDgxRelease(text)).toEqual({ name, platform: null, version, otaVersion });
});

test.each([
  ['VERSION="24.04.4 LTS (Noble Numbat)"\nUBUNTU_CODENAME=noble', "24.04.4", "noble"],
  ['VERSION="rolling"', null, null],
])("os-release with %j only", (text, version, codename) => {
  expect(readOsRelease(text)).toEqual({ name: null, version, codename });
});

test.each([
  ["Linux spark 6.17.0-1021-nvidia #21-Ubuntu SMP aarch64 GNU/Linux", "6.17.0-1021-nvidia", "aarch64"],
  ["Welcome\nLinux spark 6.17.0-1021-nvidia #21-Ubuntu SMP Wed May", "6.17.0-1021-nvidia", null],
  ["Linux spark 6.17.0-10", null, null],
  ["Darwin mac 25.1.0 Darwin Kernel Version 25.1.0 arm64", null, null],
])("uname: %s", (text, kernel, architecture) => {
  expect(readUname(text)).toEqual({ kernel, architecture });
});

test("lscpu tells neither another key's model nor its count", () => {
  const text = "BIOS Model name:  X CPU @ 3.0GHz\nOn-line CPU(s) list: 0-19\nNUMA node0 CPU(s): 0-19\nCPU(s): many\n";
  expect(readLscpu(text)).toEqual({ cpus: null, modelNames: [], architecture: null });
});

test.each<[string, ...(number | null)[]]>([
  ["MemTotal: 5 kB\nSwapCached: 1 kB\nBuffers: 2 kB\nSwapTotal: 7 kB\nSwapFree: 0 kB\n", 5, null, 7, 0],
  ["MemTotal: 5 MB\nCached: 1 kB\nBuffers: 2\nSwapTotal:\n7 kB\nSwapFree: -1 kB\n", null, null, null, null],
  ["MemTotal: 5 kB\nCached: 1 kB\nBuffers: 2 kB\n", 5, 3, null, null],
])("meminfo: %j", (text, ...kibibytes) => {
  const [totalBytes, pageCacheBytes, swapTotalBytes, swapFreeBytes] = kibibytes.map((n) => n && n * kibibyte);
  expect(readMeminfo(text)).toMatchObject({ totalBytes, pageCacheBytes, swapTotalBytes, swapFreeBytes });
});

const freeHeader = "               total        used        free      shared  buff/cache   available\n";

test.each([
  ["without -h", `${freeHeader}Mem: 127598764 110000000 2870412 2984 36703984 38911204\n`],
  ["in bytes of 1000", `${freeHeader}Mem: 130G 112G 2.9G 3.0M 37G 39G\n`],
  ["without its header", "Mem: 121Gi 105Gi 1.4Gi 790Mi 15Gi 16Gi\n"],
  ["with another header", "gesamt benutzt frei gemns. Puffer/Cache verfügbar\nSpeicher: 1Gi 2Gi 3Gi 4Gi 5Gi 6Gi\n"],
  ["with the swap row only", `${freeHeader}Swap: 15Gi 0B 15Gi\n`],
  ["with a decimal comma", `${freeHeader}Mem: 121Gi 105Gi 1,4Gi 790Mi 15Gi 16Gi\n`],
])("free %s tells nothing", (_, text) => {
  expect(readFree(text)).toEqual(noMemory);
});

test("free with less than one unit", () => {
  expect(readFree(`${freeHeader}Mem: 121Gi 0B 812Mi 0B 0B 4.0Ki\n`)).toEqual({
    totalBytes: 121 * gibibyte,
    usedBytes: 0,
    freeBytes: 812 * mebibyte,
    availableBytes: 4 * kibibyte,
  });
});

const dfRow = "/dev/nvme0n1p2 3837816832 1203311104 2439479296 34% /\n";

test.each([
  ["Filesystem     1K-blocks       Used  Available Use% Mounted on\n", kibibyte],
  ["Filesystem     1024-blocks     Used  Available Capacity Mounted on\n", kibibyte],
  ["Filesystem     1B-blocks       Used  Available Use% Mounted on\n", 1],
])("df under %j", (header, unit) => {
  expect(readDf(header + dfRow)).toEqual([
    disk("/dev/nvme0n1p2", [3837816832 * unit, 1203311104 * unit, 2439479296 * unit], "/"),
  ]);
});

test.each([
  ["no header", dfRow],
  ["a translated header", `Dateisystem 1K-Blöcke Benutzt Verfügbar Verw% Eingehängt auf\n${dfRow}`],
  ["a unit not known", `Filesystem 1M-blocks Used Available Use% Mounted on\n${dfRow}`],
  ["a row cut off", "Filesystem Size Used Avail Use% Mounted on\n/dev/nvme0n1p2  916G  313G\n  556G 37% /\n"],
])("df with %s tells nothing", (_, text) => {
  expect(readDf(text)).toEqual([]);
});

test("df with blanks in names, and with a disk that tells no sizes", () => {
  const text = `Filesystem Size Used Avail Use% Mounted on
//nas/My Share 7.3T 512 2.0T 73% /mnt/My Share
portal - - - - /run/user/1001/doc
`;
  expect(readDf(text)).toEqual([
    {
      filesystem: "//nas/My Share",
      sizeBytes: Math.round(7.3 * kibibyte * gibibyte),
      usedBytes: 512,
      availableBytes: 2 * kibibyte * gibibyte,
      mountpoint: "/mnt/My Share",
    },
    {
      filesystem: "portal",
      sizeBytes: null,
      usedBytes: null,
      availableBytes: null,
      mountpoint: "/run/user/1001/doc",
    },
  ]);
});

test("docker info without a runtime of NVIDIA, and an empty list", () => {
  expect(readDockerRuntimes(" Runtimes: runc\n Default Runtime: runc\n")).toEqual({
    runtimes: ["runc"],
    default: "runc",
  });
  expect(readDockerRuntimes(" Runtimes:\n Default Runtime:\n")).toEqual({ runtimes: [], default: null });
});

/**
 * The values that the text does not hold: words not in it, and numbers that are no number of it times a unit (rounded
 * to whole bytes), nor, where `sum` says so, two such numbers together.
 */
function invented(value: unknown, text: string, sum = false): unknown[] {
  if (value === null) return [];
  if (typeof value === "object") {
    return Object.entries(value).flatMap(([key, inner]) => invented(inner, text, key === "pageCacheBytes"));
  }
  if (typeof value === "string") return text.includes(value) ? [] : [value];
  const numbers = (text.match(/\d+(?:\.\d+)?/g) ?? []).map(Number);
  const known = new Set(
    numbers.flatMap((number) => [0, 1, 2, 3, 4, 5].map((power) => Math.round(number * kibibyte ** power))),
  );
  const held = sum ? [...known].some((part) => known.has(Number(value) - part)) : known.has(Number(value));
  return held ? [] : [value];
}

test.each<[string, (text: string) => unknown]>([
  ["readDgxRelease", readDgxRelease],
  ["readOsRelease", readOsRelease],
  ["readUname", readUname],
  ["readLscpu", readLscpu],
  ["readMeminfo", readMeminfo],
  ["readFree", readFree],
  ["readDf", readDf],
  ["readNvcc", readNvcc],
  ["readNvidiaCtk", readNvidiaCtk],
  ["readDockerRuntimes", readDockerRuntimes],
])("%s invents nothing, whatever the text", (_, read) => {
  const own = fixtures.filter((name) => expected[name]?.[0] === read).map(fixture);
  fc.assert(
    fc.property(fc.oneof(mutated(own), mutated(own), mutated(fixtures.map(fixture))), (text) => {
      expect(invented(read(text), text)).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

test("the serial number stays in the file, whatever lines are lost", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(30), { maxLength: 6 }), (lost) => {
      const lines = fixture("dgx-release-gx10-four-updates.txt").split("\n");
      const kept = lines.filter((_, index) => !lost.includes(index));
      expect(JSON.stringify(readDgxRelease(kept.join("\n")))).not.toContain("SERIAL0NUMBER0X");
    }),
  );
});

test("the property finds out what is invented", () => {
  const text = fixture("free-h-two-engines.txt");
  expect(invented({ ...readFree(text), freeBytes: 128 * gibibyte, name: "Memory" }, text)).toEqual([
    128 * gibibyte,
    "Memory",
  ]);
  expect(invented({ pageCacheBytes: 17 }, "Cached: 7 kB\nBuffers: 8 kB\n")).toEqual([17]);
  expect(invented({ totalBytes: 15 }, "Cached: 7 kB\nBuffers: 8 kB\n")).toEqual([15]);
});

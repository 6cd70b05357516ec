import fs from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  nvidiaSmiFailure,
  readComputeApps,
  readGpuQuery,
  readNvidiaSmi,
  readNvidiaSmiVersion,
} from "../../../components/preflight/readers/nvidiaSmi";
import { mutated } from "./mutated";

const folder = "test/fixtures/nvidia-smi";
const fixture = (name: string) => fs.readFileSync(`${folder}/${name}`, "utf8");
const mebibyte = 1024 ** 2;

const gb10 = (temperatureCelsius: number, powerWatts: number, utilizationPercent: number) => ({
  name: "NVIDIA GB10",
  busId: "0000000F:01:00.0",
  temperatureCelsius,
  powerWatts,
  memoryUsedBytes: null,
  memoryTotalBytes: null,
  utilizationPercent,
});
const running = (pid: number, type: string, name: string, mebibytes: number) => ({
  pid,
  type,
  name,
  memoryBytes: mebibytes * mebibyte,
});

const askedFew = ["index", "gpu_name", "pci.bus_id", "driver_version", "compute_cap", "memory.total"];
// The names of the last twelve are not known; how many they are is.
const askedMany = ["name", "memory.total", "compute_cap", ..."a b c d e f g h i j k l".split(" ")];

const expected: Record<string, [read: (text: string) => unknown, value: unknown]> = {
  "table-580.95.05-desktop.txt": [
    readNvidiaSmi,
    {
      driverVersion: "580.95.05",
      cudaVersion: "13.0",
      gpus: [gb10(48, 13, 14)],
      processes: [
        running(3960, "G", "/usr/lib/xorg/Xorg", 92),
        running(4188, "G", "/usr/bin/gnome-shell", 131),
        running(4652, "G", ".../6836/usr/lib/firefox/firefox", 305),
      ],
    },
  ],
  "table-580.126.09-busy.txt": [
    readNvidiaSmi,
    {
      driverVersion: "580.126.09",
      cudaVersion: "13.0",
      gpus: [gb10(58, 19, 7)],
      processes: [
        running(6120, "C", "python3", 1984),
        running(8231, "G", "/usr/lib/xorg/Xorg", 388),
        running(8466, "G", "/usr/bin/gnome-shell", 217),
        running(9010, "G", "...exec/xdg-desktop-portal-gnome", 61),
        running(11894, "G", "/usr/bin/ptyxis", 502),
        running(163042, "G", "...rack-uuid=4471820399999999907", 184),
        running(2811437, "C", "VLLM::EngineCore", 8512),
        running(3804116, "G", "/usr/bin/nautilus", 44),
        running(3804902, "G", ".../7901/usr/lib/firefox/firefox", 243),
        running(3805377, "G", "/usr/bin/gnome-text-editor", 39),
      ],
    },
  ],
  "table-580.159.03-vllm.txt": [
    readNvidiaSmi,
    {
      driverVersion: "580.159.03",
      cudaVersion: "13.0",
      gpus: [gb10(46, 9, 0)],
      processes: [
        running(281904, "G", "/usr/lib/xorg/Xorg", 51),
        running(281960, "G", "/usr/bin/gnome-shell", 20),
        running(355018, "C", "VLLM::EngineCore", 97102),
      ],
    },
  ],
  "table-580.173.02-two-vllm.txt": [
    readNvidiaSmi,
    {
      driverVersion: "580.173.02",
      cudaVersion: "13.0",
      gpus: [gb10(61, 34, 96)],
      processes: [
        running(2877, "G", "/usr/lib/xorg/Xorg", 22),
        running(3390, "G", "/usr/bin/gnome-shell", 8),
        running(19240, "C", "VLLM::EngineCore", 42866),
        running(19511, "C", "VLLM::EngineCore", 45120),
      ],
    },
  ],
  "table-580.178.04-no-timestamp.txt": [
    readNvidiaSmi,
    { driverVersion: "580.178.04", cudaVersion: "13.0", gpus: [gb10(39, 5, 0)], processes: [] },
  ],
  "version-580.142.txt": [readNvidiaSmiVersion, { driverVersion: "580.142", cudaVersion: "13.1" }],
  "query-index-name-bus-driver-cap-memory.txt": [
    (text) => readGpuQuery(text, askedFew),
    [
      {
        index: "0",
        gpu_name: "NVIDIA GB10",
        "pci.bus_id": "0000000F:01:00.0",
        driver_version: "580.159.03",
        compute_cap: "12.1",
        "memory.total": null,
      },
    ],
  ],
  "query-15-fields-nounits.txt": [
    (text) => readGpuQuery(text, askedMany),
    [
      {
        name: "NVIDIA GB10",
        "memory.total": null,
        compute_cap: "12.1",
        a: null,
        b: "3",
        c: "57",
        d: "14.2",
        e: null,
        f: null,
        g: "2418",
        h: "3003",
        i: null,
        j: "2418",
        k: "1",
        l: "1",
      },
    ],
  ],
  "query-compute-apps-nounits.txt": [
    readComputeApps,
    [
      { pid: 4127, name: "python3", memoryBytes: 231 * mebibyte },
      { pid: 9052, name: "sglang::scheduler", memoryBytes: 95814 * mebibyte },
    ],
  ],
  "error-driver-library-mismatch.txt": [nvidiaSmiFailure, "driver-library-mismatch"],
  "error-no-driver-communication.txt": [nvidiaSmiFailure, "no-driver-communication"],
};
const fixtures = Object.keys(expected);
const failures = fixtures.filter((name) => name.startsWith("error-"));

test("every fixture is read by a test", () => {
  expect(fs.readdirSync(folder).sort()).toEqual(fixtures.sort());
});

test.each(Object.entries(expected))("%s", (name, [read, value]) => {
  expect(read(fixture(name))).toEqual(value);
  expect(read(fixture(name).replaceAll("\n", "\r\n"))).toEqual(value);
});

test.each(fixtures.filter((name) => !failures.includes(name)))("%s is no failure", (name) => {
  expect(nvidiaSmiFailure(fixture(name))).toBeNull();
});

test.each([...failures, ""])("a failure tells no values: %j", (name) => {
  const text = name && fixture(name);
  expect(readNvidiaSmi(text)).toEqual({ driverVersion: null, cudaVersion: null, gpus: [], processes: [] });
  expect(readGpuQuery(text, ["driver_version"])).toEqual([]);
  expect(readComputeApps(text)).toEqual([]);
});

test("a table of two GPUs with memory of their own", () => {
  const text = [
    "| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |",
    "|   0  NVIDIA RTX A6000               Off |   00000000:01:00.0 Off |                  Off |",
    "| 30%   41C    P8             22W /  300W |     512MiB /  49140MiB |      3%      Default |",
    "|   1  NVIDIA RTX A6000               Off |   00000000:02:00.0 Off |                  Off |",
    "| ERR!  N/A    P8            ERR! /  300W |     512MiB /  4914xMiB |     N/A      Default |",
    "|    0   N/A  N/A            1201    C+G   /opt/some name, cut | in two              N/A |",
    "|  No running processes found                                                             |",
  ].join("\n");
  expect(readNvidiaSmi(text)).toEqual({
    driverVersion: "610.57.04",
    cudaVersion: "13.3",
    gpus: [
      {
        name: "NVIDIA RTX A6000",
        busId: "00000000:01:00.0",
        temperatureCelsius: 41,
        powerWatts: 22,
        memoryUsedBytes: 512 * mebibyte,
        memoryTotalBytes: 49140 * mebibyte,
        utilizationPercent: 3,
      },
      {
        name: "NVIDIA RTX A6000",
        busId: "00000000:02:00.0",
        temperatureCelsius: null,
        powerWatts: null,
        memoryUsedBytes: 512 * mebibyte,
        memoryTotalBytes: null,
        utilizationPercent: null,
      },
    ],
    processes: [{ pid: 1201, type: "C+G", name: "/opt/some name, cut | in two", memoryBytes: null }],
  });
});

test("a GPU whose row of numbers is gone keeps its name", () => {
  const text = fixture("table-580.95.05-desktop.txt").replace(/^.*P0.*\n/m, "");
  expect(readNvidiaSmi(text).gpus).toEqual([
    { ...gb10(0, 0, 0), temperatureCelsius: null, powerWatts: null, utilizationPercent: null },
  ]);
});

test.each(["CUDA Version        : N/A", "DRIVER version      :\n580.142", "Driver Version: 580.142-beta"])(
  "no version in %j",
  (text) => {
    expect(readNvidiaSmiVersion(text)).toEqual({ driverVersion: null, cudaVersion: null });
  },
);

test.each(["[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Unknown Error]", "[GPU requires reset]", ""])(
  "the value %j is none",
  (value) => {
    expect(readGpuQuery(`GB10, ${value}\n`, ["name", "power.draw"])).toEqual([{ name: "GB10", "power.draw": null }]);
  },
);

test.each<[string, string[]]>([
  ["NVIDIA GB10, 12.1", ["name"]],
  ["NVIDIA GB10", ["name", "compute_cap"]],
  ["No devices were found", ["name"]],
  ['Field "nmae" is not a valid field to query.', ["nmae"]],
  ["\n  \n", ["name"]],
  ["NVIDIA GB10", []],
])("%j is no record of %j", (text, fields) => {
  expect(readGpuQuery(text, fields)).toEqual([]);
});

test("one record a GPU", () => {
  expect(readGpuQuery("0, 52 %\n1, [N/A]\n", ["index", "utilization.gpu"])).toEqual([
    { index: "0", "utilization.gpu": "52 %" },
    { index: "1", "utilization.gpu": null },
  ]);
});

test("names of compute processes", () => {
  const text =
    "71, ray::RayWorkerWrapper.execute_method, [N/A]\n72, /opt/a, b --x=1,2, 40\n73, cut, off\n74, 40\nx, y, 1\n";
  expect(readComputeApps(text)).toEqual([
    { pid: 71, name: "ray::RayWorkerWrapper.execute_method", memoryBytes: null },
    { pid: 72, name: "/opt/a, b --x=1,2", memoryBytes: 40 * mebibyte },
  ]);
});

/** The values that the text does not hold: words not in it, and numbers that are no number of it times the unit. */
function invented(value: unknown, text: string): unknown[] {
  if (value === null) return [];
  if (typeof value === "object") return Object.values(value).flatMap((inner) => invented(inner, text));
  if (typeof value === "string") return text.includes(value) ? [] : [value];
  const numbers = text.match(/\d+(?:\.\d+)?/g) ?? [];
  return numbers.some((word) => [1, mebibyte].some((unit) => Number(word) * unit === value)) ? [] : [value];
}

const readers: Record<string, (text: string) => unknown> = {
  readNvidiaSmi,
  readNvidiaSmiVersion,
  "readGpuQuery of one field": (text) => readGpuQuery(text, ["name"]),
  "readGpuQuery of six fields": (text) => readGpuQuery(text, askedFew),
  readComputeApps,
};

test.each(Object.entries(readers))("%s invents nothing, whatever the text", (_, read) => {
  fc.assert(
    fc.property(mutated(fixtures.map(fixture)), (text) => {
      expect(invented(read(text), text)).toEqual([]);
    }),
    { numRuns: 1000 },
  );
});

test("a failure is told only by its own words, whatever the text", () => {
  fc.assert(
    fc.property(mutated(fixtures.map(fixture)), (text) => {
      if (nvidiaSmiFailure(text) !== null)
        expect(text).toMatch(/Driver\/library version mismatch|couldn't communicate/);
    }),
  );
});

test("the property finds out what is invented", () => {
  const text = fixture("table-580.95.05-desktop.txt");
  expect(invented({ ...gb10(0, 13, 14), memoryTotalBytes: 128 * mebibyte, name: "GB200" }, text)).toEqual([
    "GB200",
    128 * mebibyte,
  ]);
});

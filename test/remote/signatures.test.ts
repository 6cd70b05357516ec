import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import * as fc from "fast-check";
import { beforeAll, expect, test } from "vitest";

interface Row {
  code: string;
  pattern: string;
  seen: string;
  cause: string;
  cure: string;
  consequence?: true;
}
type Found = [code: string, cause: string, cure: string, line: string];

const folder = "test/fixtures/logs";
const table = JSON.parse(fs.readFileSync("scripts/remote/signatures.json", "utf8")) as Row[];

/** What each log is explained by, in this order: every fixture is named here. */
const expected: Record<string, string[]> = {
  "docker/driver-mismatch.txt": ["driver-updated"],
  "docker/exec-format.txt": ["image-exec-format"],
  "docker/gpu-lost.txt": ["gpu-lost"],
  "docker/no-nvidia-runtime.txt": ["docker-no-nvidia"],
  "docker/no-nvidia.txt": ["docker-no-nvidia"],
  "download/docker-no-matching-manifest.txt": ["image-other-architecture"],
  "download/docker-rate-limit.txt": ["docker-rate-limit"],
  "download/docker-registry-busy.txt": ["registry-busy"],
  "download/hf-429.txt": ["hf-rate-limit"],
  // The warning before it, in MB, did not end the download.
  "download/hf-disk-full.txt": ["disk-full"],
  "download/hf-disk-warning-then-progress.txt": [],
  "download/hf-gated-401-newer-wording.txt": ["hf-no-token"],
  "download/hf-gated-401.txt": ["hf-no-token"],
  "download/hf-gated-403.txt": ["hf-no-access"],
  "download/hf-no-repository.txt": ["hf-no-repository"],
  "download/hf-unreachable.txt": ["hub-unreachable"],
  "host/nvrm-no-memory.txt": ["nvrm-no-memory"],
  "nccl/debug-info-net-ib-not-an-error.txt": [],
  "nccl/debug-info-net-socket.txt": ["nccl-over-sockets"],
  "nccl/error-ibv-modify-qp-110.txt": ["rdma-no-path"],
  "nccl/error-ibv-reg-mr.txt": ["rdma-no-memory"],
  "ray/error-marked-dead.txt": ["ray-heartbeats", "ray-node-died"],
  "ray/error-missed-heartbeats.txt": ["ray-heartbeats"],
  "ray/error-no-available-node-types-plural.txt": ["ray-no-gpu"],
  "ray/error-no-available-node-types.txt": ["ray-no-gpu"],
  "ray/error-no-gcs-ray-head.txt": ["ray-no-head"],
  "ray/error-no-gcs.txt": ["ray-no-head"],
  "ray/error-no-gpu-available.txt": ["ray-gpu-held"],
  "ray/error-no-ray-exec.txt": ["image-no-ray"],
  "ray/error-no-ray-shell.txt": ["image-no-ray"],
  "ray/error-node-died.txt": ["ray-node-died"],
  "ray/error-oom-task-was-running.txt": ["ray-memory-monitor"],
  "ray/error-oom-then-engine-init-failed.txt": ["ray-memory-monitor"],
  "ray/error-oom-threshold-with-ip.txt": ["ray-memory-monitor"],
  "ray/error-raylet-died.txt": ["ray-process-died"],
  "ray/error-start-timed-out.txt": ["ray-start-timeout"],
  "ray/error-version-mismatch.txt": ["ray-version-mismatch"],
  "ray/placement-group-wait-local-instance.txt": ["ray-local-instance"],
  "ray/placement-group-wait-long.txt": ["ray-placement-wait"],
  "ray/raylet-memory-monitor-kill.txt": ["ray-memory-monitor"],
  "ray/raylet-ordinary.txt": [],
  "ray/status-two-sparks.txt": [],
  "sglang/error-model-too-new.txt": ["model-too-new"],
  "sglang/init.txt": [],
  "sglang/shards-progress.txt": [],
  "sglang/startup-single.txt": [],
  "sglang/startup-three-sparks.txt": [],
  "ssh/banner-timeout.txt": ["ssh-frozen"],
  "ssh/could-not-resolve-linux.txt": ["ssh-name"],
  "ssh/could-not-resolve-macos.txt": ["ssh-name"],
  "ssh/host-key-changed.txt": ["ssh-host-key"],
  "ssh/kex-connection-closed.txt": ["ssh-closed"],
  "ssh/kex-connection-reset.txt": ["ssh-closed"],
  "ssh/permission-denied.txt": ["ssh-denied"],
  "vllm/error-attention-heads.txt": ["tensor-parallel-heads"],
  "vllm/error-cuda-memory-at-start.txt": ["cuda-memory-at-start"],
  "vllm/error-cuda-oom.txt": ["cuda-out-of-memory"],
  "vllm/error-eaddrinuse.txt": ["port-taken"],
  "vllm/error-engine-dead-apiserver-prefix.txt": ["engine-dead"],
  "vllm/error-free-memory-cuda0.txt": ["memory-not-free"],
  "vllm/error-free-memory-old-wording-wrapped.txt": ["memory-not-free"],
  "vllm/error-free-memory-one-decimal.txt": ["memory-not-free"],
  "vllm/error-gloo-hostname.txt": ["gloo-hostname"],
  "vllm/error-gloo-interface.txt": ["interface-without-address"],
  "vllm/error-gloo-loopback.txt": ["gloo-loopback"],
  "vllm/error-gloo-unreachable.txt": ["gloo-unreachable"],
  "vllm/error-inotify-watches.txt": ["inotify-watches"],
  "vllm/error-kv-cache-none.txt": ["kv-cache-none"],
  "vllm/error-kv-cache-too-small.txt": ["kv-cache-too-small"],
  "vllm/error-libcudart.txt": ["image-libcudart"],
  "vllm/error-mamba-blocks.txt": ["mamba-blocks"],
  "vllm/error-max-model-len.txt": ["max-model-len"],
  "vllm/error-memory-profiling.txt": ["memory-grew"],
  "vllm/error-model-absent.txt": ["model-not-found"],
  "vllm/error-model-not-supported.txt": ["model-too-new"],
  "vllm/error-model-relative.txt": ["model-not-found"],
  "vllm/error-ninja-code-137.txt": ["compiler-killed"],
  "vllm/error-not-sm121-cutlass.txt": ["image-not-sm121"],
  "vllm/error-not-sm121-fp4.txt": ["image-not-sm121"],
  "vllm/error-not-sm121-no-kernel-image.txt": ["image-not-sm121"],
  "vllm/error-port-taken.txt": ["port-taken"],
  "vllm/error-ptxas-sm121a.txt": ["image-ptxas-old"],
  "vllm/error-safetensors.txt": ["model-damaged"],
  "vllm/error-tokenizers-backend.txt": ["image-transformers"],
  "vllm/error-transformers-5.txt": ["image-transformers"],
  "vllm/error-unique-ip.txt": ["address-not-unique"],
  "vllm/error-unrecognized-arguments.txt": ["image-arguments"],
  "vllm/local-path-not-an-error.txt": [],
  "vllm/shards-progress-one-line.txt": [],
  "vllm/startup-free-memory-not-an-error.txt": [],
  "vllm/startup-two-sparks-tp2-ray.txt": [],
};

const fixtures = Object.fromEntries(
  Object.keys(expected).map((name) => [name, fs.readFileSync(path.join(folder, name), "utf8")]),
);
const everything = Object.values(fixtures).reverse().join("\n");

/** Fixtures torn, joined and mixed with noise, such as a log is that was cut, rotated or written by several at once. */
const noise = fc.sample(
  fc
    .array(
      fc.oneof(
        fc.tuple(fc.constantFrom(...Object.values(fixtures)), fc.nat(900), fc.nat(900)).map(([text, from, length]) => {
          return text.slice(from, from + length);
        }),
        fc.constantFrom(
          ...Object.values(fixtures),
          ...table.map(({ pattern }) => pattern),
          "\r",
          "\n",
          "\x1b[36m",
          "\0",
        ),
        fc.string({ unit: "binary", maxLength: 30 }),
      ),
      { maxLength: 6 },
    )
    .map((pieces) => pieces.join("")),
  { numRuns: 400, seed: 7 },
);

// All that Python is asked, in one run of it.
const python = `
import json, re, sys
scripts, sys.argv = sys.argv[1], ["wait_for_server.py", "server", "0", "tiny", "1"]
sys.path.insert(0, scripts)
from signatures import TABLE, explain
from wait_for_server import stage
asked = json.load(sys.stdin)
def stages(log):
    # As the gate reads a log: in text mode every kind of line end ends a line.
    return [text for line in re.split("\\r\\n|\\r|\\n", log) if (text := stage(line))]
json.dump({
    "explained": [explain(log) for log in asked],
    "matching": [[row["code"] for row, pattern in TABLE if pattern.search(log)] for log in asked],
    "stages": [stages(log) for log in asked],
}, sys.stdout)
`;
const names = Object.keys(fixtures);
const asked = [...Object.values(fixtures), everything, ...noise];
let told: { explained: Found[][]; matching: string[][]; stages: string[][] };

beforeAll(() => {
  const done = spawnSync("python3", ["-B", "-c", python, path.resolve("scripts/remote")], {
    input: JSON.stringify(asked),
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  expect(done.stderr).toBe("");
  told = JSON.parse(done.stdout) as typeof told;
});

const explained = (name: string) => told.explained[names.indexOf(name)] ?? [];
const flat = (text: string) => text.replace(/\s+/g, " ");

test("every log is explained by exactly what it shows, and every fixture is asked about", () => {
  expect(Object.fromEntries(names.map((name) => [name, explained(name).map(([code]) => code)]))).toEqual(expected);
  const files = fs.readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".txt"));
  expect(files.sort()).toEqual([...names].sort());
});

test("each row has a fixture that it explains first, and that shows what it says is seen", () => {
  const unproven = table.filter(
    ({ code, seen }) =>
      !names.some((name) => {
        if (expected[name]?.[0] !== code) return false;
        const pieces = seen.split("…").map((piece) => piece.trim());
        let rest = flat(fixtures[name] ?? "");
        return pieces.every((piece) => {
          const at = rest.indexOf(piece);
          rest = rest.slice(at + piece.length);
          return at >= 0;
        });
      }),
  );
  expect(unproven.map(({ code }) => code)).toEqual([]);
});

test("codes are unique, causes are sentences, and errors that only report others come last", () => {
  const codes = table.map(({ code }) => code);
  expect(new Set(codes).size).toBe(codes.length);
  expect(codes.filter((code) => !/^[a-z0-9]+(-[a-z0-9]+)*$/.test(code))).toEqual([]);
  expect(table.filter(({ cause, cure }) => !cause.endsWith(".") || !cure.endsWith("."))).toEqual([]);
  expect(table.map(({ consequence }) => consequence === true).lastIndexOf(false)).toBe(
    table.filter(({ consequence }) => !consequence).length - 1,
  );
  // A place to fill names a group that the pattern has.
  const groups = (pattern: string) => (new RegExp(`${pattern}|`).exec("")?.length ?? 0) - 1;
  const places = (row: Row) => [...`${row.cause} ${row.cure}`.matchAll(/\{(\d)\}/g)].map((match) => Number(match[1]));
  expect(table.filter((row) => places(row).some((place) => place >= groups(row.pattern)))).toEqual([]);
});

test("patterns mean the same in JavaScript as in Python", () => {
  const matching = names.map((name) =>
    table.filter(({ pattern }) => new RegExp(pattern).test(fixtures[name] ?? "")).map(({ code }) => code),
  );
  expect(matching).toEqual(told.matching.slice(0, names.length));
});

test.each<[string, string, string]>([
  [
    "vllm/error-free-memory-old-wording-wrapped.txt",
    "Only 17.02 of 121.69 GiB were free at the start, less than `server.gpuMemoryUtilization` asks for.",
    "ValueError: Free memory on device (17.02/121.69 GiB) on startup is less than desired GPU memory utilization (0.6, 73.01 GiB).",
  ],
  [
    "vllm/error-free-memory-one-decimal.txt",
    "Only 111.4 of 119.7 GiB were free at the start, less than `server.gpuMemoryUtilization` asks for.",
    "Free memory on device cuda:0 (111.4/119.7 GiB) on startup is less than desired GPU memory utilization (0.9400, 112.52 GiB).",
  ],
  [
    "ray/error-oom-threshold-with-ip.txt",
    "Ray's memory monitor killed a rank at 115.71 of 121.69 GB: on a Spark it counts the page cache of a loading model too.",
    "ray.exceptions.OutOfMemoryError: Memory on the node (IP: 192.168.200.13) was 115.71GB / 121.69GB (0.950859), which exceeds the memory usage threshold of 0.95.",
  ],
  [
    "ray/error-version-mismatch.txt",
    "On node 192.168.200.13 another version of Ray or Python runs than the cluster began with: two images, or a Ray that is not ours.",
    "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.49.1 Python: 3.12.3 This process on node 192.168.200.13 was started with:",
  ],
  [
    "nccl/error-ibv-modify-qp-110.txt",
    "RDMA device rocep1s0f0 has no way to the other node: it is the wrong port, or its subnet is another.",
    flat(fixtures["nccl/error-ibv-modify-qp-110.txt"] ?? "").trim(),
  ],
  [
    "vllm/error-mamba-blocks.txt",
    "The model keeps a state for each request, and there is memory for 30, not for the 256 of `server.maxNumSeqs`.",
    flat(fixtures["vllm/error-mamba-blocks.txt"] ?? "").trim(),
  ],
  [
    "vllm/error-attention-heads.txt",
    "The model's 64 attention heads can't be shared out to 3 nodes.",
    flat(fixtures["vllm/error-attention-heads.txt"] ?? "").trim(),
  ],
  [
    "ray/error-no-gcs-ray-head.txt",
    "Ray's head does not answer at 192.168.200.12:6379: it does not run there, or the fabric does not lead there.",
    flat(fixtures["ray/error-no-gcs-ray-head.txt"]?.split("\n")[1] ?? ""),
  ],
  [
    "ssh/could-not-resolve-macos.txt",
    "The name spark-a.local has no address where the connection starts.",
    "ssh: Could not resolve hostname spark-a.local: nodename nor servname provided, or not known",
  ],
])("%s: the cause has the log's values, and the line is whole", (name, cause, line) => {
  expect(explained(name).map(([, ...rest]) => [rest[0], rest[2]])).toEqual([[cause, line]]);
});

test("of many errors the first three by the table are told, whatever their order in the log", () => {
  expect(told.explained[names.length]?.map(([code]) => code)).toEqual(table.slice(0, 3).map(({ code }) => code));
});

test("noise is survived: three causes at most, none twice, and no line that is not in the log", () => {
  told.explained.forEach((found, index) => {
    const log = flat((asked[index] ?? "").replaceAll("\x1b[36m", ""));
    const codes = found.map(([code]) => code);
    expect(codes.length).toBeLessThanOrEqual(3);
    // In the table's order, which also means none twice.
    expect(table.map(({ code }) => code).filter((code) => codes.includes(code))).toEqual(codes);
    for (const [, cause, cure, line] of found) {
      expect(line.length).toBeLessThanOrEqual(300);
      expect(`${cause}${cure}`).not.toMatch(/\{\d\}/);
      // Python knows more blanks than JavaScript: only the words are compared.
      const words = line.match(/[\x21-\x7e]+/g) ?? [];
      expect(words.filter((word) => !log.includes(word))).toEqual([]);
    }
  });
});

test.each<[string, string[]]>([
  ["vllm/shards-progress-one-line.txt", ["loading weights: 100 %, 3 of 3 files"]],
  [
    "vllm/startup-two-sparks-tp2-ray.txt",
    [
      "weights loaded: 58.21 GiB in 301.446190 s",
      "weights loaded: 58.21 GiB in 302.007315 s",
      "KV cache: 14,210,832 tokens",
      "engine ready after 58.73 s",
      "API up, waiting for a completion",
    ],
  ],
  ["vllm/startup-free-memory-not-an-error.txt", []],
  ["ray/status-two-sparks.txt", []],
  // All files read is not yet loaded: that takes minutes more.
  [
    "sglang/shards-progress.txt",
    [
      "loading weights: 0 %, 0 of 40 files",
      "loading weights: 2 %, 1 of 40 files",
      "loading weights: 8 %, 3 of 40 files",
      "loading weights: 50 %, 20 of 40 files",
      "loading weights: 92 %, 37 of 40 files",
      "loading weights: 100 %, 40 of 40 files",
    ],
  ],
  ["sglang/init.txt", []],
  ["sglang/startup-single.txt", []],
  ["sglang/startup-three-sparks.txt", []],
])("progress that the gate reads in %s", (name, stages) => {
  expect(told.stages[names.indexOf(name)]).toEqual(stages);
});

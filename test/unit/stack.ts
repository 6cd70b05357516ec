import * as fs from "node:fs";
import * as pulumi from "@pulumi/pulumi";
import type { MockResourceArgs } from "@pulumi/pulumi/runtime";
import type { RegisterResourceRequest } from "@pulumi/pulumi/proto/resource_pb";
import { vi } from "vitest";
import { parse } from "yaml";

/** Values that Pulumi.dev.yaml and Pulumi.lab.yaml leave to the person, or to `./scripts/lab`. */
export const hostKeys = [
  "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHeadHeadHeadHeadHeadHeadHeadHeadHeadHeadHead",
  "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIWorkerWorkerWorkerWorkerWorkerWorkerWorke",
] as const;
export const digest = "0123456789abcdef".repeat(4);

/** One resource as the engine is asked for it. */
export interface Registered {
  type: string;
  name: string;
  parent: string;
  provider: string;
  dependsOn: string[];
  /** Resources that a container's variables are made from. */
  environmentOf: string[];
  /** Resources that its name is made from: it is taken away before one of them is made anew. */
  nameOf: string[];
  hooks: string[];
  deleteBeforeReplace: boolean;
  inputs: Record<string, unknown>;
}

/** What a resource is made of, in full. To be compared, and never shown: secrets are among it. */
export interface Material {
  inputs: Record<string, unknown>;
  /** Resources that an input is made from, by the input's name. */
  madeFrom: Record<string, string[]>;
}

/** What the program asked for, and what it exports. */
export interface StackRun {
  resources: Registered[];
  /** By name of the resource. */
  materials: ReadonlyMap<string, Material>;
  outputs: Record<string, unknown>;
}

interface Monitor {
  registerResource(request: RegisterResourceRequest, callback: unknown): Promise<void>;
  registerResourceHook(request: unknown, callback: (error: null, response: object) => void): void;
}

const secretSignature = "4dabf18193072939515e22adb298388d";

/** Property values as they travel, with every secret replaced by one word. */
function redact(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(redact);
  if (typeof value !== "object" || value === null) return value;
  const record = value as Record<string, unknown>;
  if (record[secretSignature] === "1b47061264138c4ac30d75fd1eb44270") return "[secret]";
  const signature = record[secretSignature];
  if (typeof signature === "string") return { asset: record["path"] ?? record["text"] };
  return Object.fromEntries(Object.entries(record).map(([key, inner]) => [key, redact(inner)]));
}

/** Property values as they travel, a file being its text, which is what the engine compares. */
function whole(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(whole);
  if (typeof value !== "object" || value === null) return value;
  const { path, ...record } = value as Record<string, unknown>;
  if (secretSignature in record && typeof path === "string") return fs.readFileSync(path, "utf8");
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, whole(inner)]));
}

/** The program of a step as the names of the scripts in it. */
function legible(inputs: Record<string, unknown>): Record<string, unknown> {
  const files = /^FILES = json\.loads\((.*)\)$/m.exec(String(inputs["stdin"]))?.[1];
  if (files === undefined) return inputs;
  return { ...inputs, stdin: Object.keys(JSON.parse(JSON.parse(files) as string) as object) };
}

const machine = {
  productName: "NVIDIA_DGX_Spark",
  architecture: "aarch64",
  operatingSystem: "Ubuntu 24.04.3 LTS",
  dgxRelease: "7.6.0",
  kernel: "6.14.0-1013-nvidia",
  cpus: 20,
  gpu: { name: "NVIDIA GB10", driverVersion: "580.95.05" },
};
const changing = {
  memory: { totalBytes: 128527851520, availableBytes: 1 },
  docker: { version: "28.3.3" },
  notes: ["x"],
};

/** What preflight prints when all is well. */
export const preflight = {
  ready: true,
  problems: [],
  facts: {
    "spark-1": { hostname: "a-spark", ...machine, ...changing },
    "spark-2": { hostname: "another-spark", ...machine, ...changing },
  },
  fabric: [{ from: "spark-1", to: "spark-2", mtuBytes: 9000, tcpGigabitsPerSecond: 31.4 }],
};

/** What the stack's outputs show of these machines. */
export const machines = ["a-spark", "another-spark"].map((hostname) => ({
  hostname,
  ...machine,
  memoryTotalBytes: 128527851520,
  dockerVersion: "28.3.3",
}));

export const allReduce = {
  backend: "nccl",
  tensorBytes: 67108864,
  busGigabytesPerSecond: 19.2,
  transport: { "spark-1": "NET/IB", "spark-2": "NET/IB" },
};

const rate = { median: 31.5, low: 31, high: 32 };
const latency = { median: 15.9, low: 15.8, high: 16, p90: 16.5, p99: 17 };

/** What the benchmark prints. */
export const figures = {
  version: 1,
  method: {
    tool: "vllm bench serve 0.32.0",
    endpoint: "http://127.0.0.1:8000/v1/completions, streamed",
    driver: "the head, a-spark",
    dataset: "random tokens",
    model: "a-model",
    repeats: 3,
    durationSeconds: 97.5,
    tokensCountedBy: "usage in the server's answers",
    image: "sha256:1",
    serverDigest: "2",
    checks: ["every request completed"],
    unchecked: [],
  },
  startedAt: "2026-12-02T00:00:00+00:00",
  tool: "vllm-bench",
  scenarios: [
    {
      name: "single-stream",
      inputTokens: 1024,
      prefixTokens: 0,
      outputTokens: 128,
      levels: [
        {
          concurrency: 1,
          requests: 4,
          warmupRequests: 1,
          seeds: [1, 2, 3],
          durationSeconds: rate,
          requestsPerSecond: rate,
          outputTokensPerSecond: rate,
          totalTokensPerSecond: rate,
          promptTokensPerSecond: rate,
          ppTokensPerSecond: null,
          tgTokensPerSecond: null,
          ttftMilliseconds: latency,
          tpotMilliseconds: latency,
          itlMilliseconds: null,
        },
      ],
      peakConcurrency: 1,
      ended: "all levels measured",
    },
  ],
  earlier: [],
};

/** What each script prints, by its file name. A script that is not here fails the test. */
const results: Readonly<Record<string, unknown>> = {
  "workspace.sh": { changed: false },
  "pull_image.py": {
    ...{ changed: true, id: "sha256:1", engine: { vllm: "0.32.0", ray: "2.60.0", python: "3.12.3" } },
    pull: { bytes: 5_000, seconds: 4 },
  },
  "fabric-key.sh": { changed: true, publicKey: `ssh-ed25519 ${"A".repeat(68)}` },
  "authorize-fabric-key.sh": { changed: true },
  "copy_image.py": { changed: true, bytes: 12_000, seconds: 2 },
  "check_model.py": { changed: false, files: 1, bytes: 1 },
  "fetch_model.py": {
    ...{ changed: true, files: 2, bytes: 5_000, digest, commit: "0123", fetchedBytes: 4_000, seconds: 2 },
  },
  "list_model.py": { changed: false, files: 2, bytes: 5_000, digest },
  "model_receiver.py": { changed: true },
  "copy_model.py": {
    changed: true,
    nodes: { "spark-2": { bytes: 5_000, seconds: 0.5 }, "spark-3": { bytes: 0, seconds: 0 } },
  },
  "wait_for_ray.py": { changed: false, nodes: [] },
  "wait_for_server.py": { changed: false, model: "a-model" },
  "smoke.py": { keyRequired: true, reasoning: true, toolCall: true, completionTokens: 9 },
  "check_served_model.py": { changed: false, models: [] },
  "benchmark.py": figures,
};

function stdoutOf(create: string, printed: Readonly<Record<string, unknown>>): string {
  const script = /^python3 -B - \S+ \S+ \S+ [\d.]+ create (?:\S+\/)?(\S+)/.exec(create)?.[1];
  if (script === undefined || !(script in results)) throw new Error(`the mock does not know the command ${create}`);
  return JSON.stringify({ ...results, ...printed }[script]);
}

function stdoutHere(create: string): string {
  switch (create) {
    case "./scripts/preflight --step nodes":
      return JSON.stringify(preflight);
    case "./scripts/send-model":
      return JSON.stringify({ changed: true, bytes: 5_000, seconds: 9 });
    case "./scripts/preflight --step all-reduce":
      return JSON.stringify({ figures: allReduce, problems: [] });
    default:
      throw new Error(`the mock does not know the command ${create}`);
  }
}

function newResource(
  args: MockResourceArgs,
  printed: Readonly<Record<string, unknown>>,
): { id: string; state: Record<string, unknown> } {
  const inputs = args.inputs as Record<string, unknown>;
  switch (args.type) {
    case "command:local:Command":
      return { id: `${args.name}-id`, state: { ...inputs, stdout: stdoutHere(String(inputs["create"])), stderr: "" } };
    case "command:remote:Command":
      return {
        id: `${args.name}-id`,
        state: { ...inputs, stdout: stdoutOf(String(inputs["create"]), printed), stderr: "" },
      };
    case "pulumi:providers:docker":
    case "docker:index/container:Container":
      return { id: `${args.name}-id`, state: inputs };
    case "random:index/randomPassword:RandomPassword":
      return { id: `${args.name}-id`, state: { ...inputs, result: "a-generated-key" } };
    default:
      if (args.type.startsWith("dgx-spark-serving:index:")) return { id: "", state: {} };
      throw new Error(`the mock does not know the resource type ${args.type}`);
  }
}

/** A stack's committed configuration, with what it leaves open filled in; its keys without the project. */
export function configurationOf(stack: "dev" | "lab"): Record<string, unknown> {
  const file = parse(fs.readFileSync(`Pulumi.${stack}.yaml`, "utf8")) as { config: Record<string, unknown> };
  const dev = parse(fs.readFileSync("Pulumi.dev.yaml", "utf8")) as { config: Record<string, unknown> };
  const config = { ...file.config };
  const nodes = (config["dgx-spark-serving:nodes"] ?? dev.config["dgx-spark-serving:nodes"]) as Record<
    string,
    unknown
  >[];
  config["dgx-spark-serving:nodes"] = nodes.map((node, index) => ({ ...node, hostKey: hostKeys[index] }));
  config["dgx-spark-serving:image"] ??= `registry.example/vllm@sha256:${digest}`;
  return Object.fromEntries(
    Object.entries(config).map(([key, value]) => [key.replace("dgx-spark-serving:", ""), value]),
  );
}

/**
 * Runs the program with mocks.
 *
 * @param config configuration, its keys without the project
 * @param leftOut names of the resources that are left out, as by `--exclude`
 * @param printed what scripts print, by their file names, where it is not as ever
 */
export async function runStack(
  stack: string,
  config: Record<string, unknown>,
  leftOut = /^$/,
  printed: Readonly<Record<string, unknown>> = {},
): Promise<StackRun> {
  const requests: Registered[] = [];
  const materials = new Map<string, Material>();
  const last = (urn: string) => urn.slice(urn.lastIndexOf("::") + 2);
  pulumi.runtime.setAllConfig(
    Object.fromEntries(
      Object.entries(config).map(([key, value]) => [
        `dgx-spark-serving:${key}`,
        typeof value === "string" ? value : JSON.stringify(value),
      ]),
    ),
  );
  await pulumi.runtime.setMocks(
    {
      newResource: (args) => (leftOut.test(args.name) ? { id: "", state: {} } : newResource(args, printed)),
      call: (args) => {
        throw new Error(`the mock does not know the call ${args.token}`);
      },
    },
    "dgx-spark-serving",
    stack,
  );
  // The mocks' own callback sees no options, so the requests are read on their way to it.
  const monitor = pulumi.runtime.getMonitor() as unknown as Monitor;
  const register = monitor.registerResource.bind(monitor);
  monitor.registerResource = (request, callback) => {
    const inputs = request.getObject()?.toJavaScript() ?? {};
    const sources = [...request.getPropertydependenciesMap().entries()].map(
      ([property, dependencies]) => [property, dependencies.getUrnsList().map(last).sort()] as const,
    );
    const madeFrom = Object.fromEntries(sources);
    materials.set(request.getName(), { inputs: whole(inputs) as Record<string, unknown>, madeFrom });
    requests.push({
      type: request.getType(),
      name: request.getName(),
      parent: last(request.getParent()),
      provider: last(request.getProvider().replace(/::[^:]*$/, "")),
      dependsOn: request.getDependenciesList().map(last).sort(),
      environmentOf: madeFrom["envs"] ?? [],
      nameOf: madeFrom["name"] ?? [],
      hooks: request.getHooks()?.getBeforeCreateList() ?? [],
      deleteBeforeReplace: request.getDeletebeforereplace(),
      inputs: legible(redact(inputs) as Record<string, unknown>),
    });
    return register(request, callback);
  };
  monitor.registerResourceHook = (_request, callback) => {
    callback(null, {});
  };
  vi.resetModules();
  const { default: program } = await import("../../index");
  const outputs = await new Promise<Record<string, unknown>>((resolve) => {
    pulumi.output(program).apply((value) => {
      resolve({ ...value });
    });
  });
  // The next run's monitor does not know what this one still has to say.
  await pulumi.runtime.disconnect();
  const resources = requests.sort((a, b) => (`${a.type} ${a.name}` < `${b.type} ${b.name}` ? -1 : 1));
  return { resources, materials, outputs };
}

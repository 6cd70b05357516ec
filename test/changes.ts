/**
 * What changes when: one row a setting, and what that does to each resource. Plain data, which the test on the mock graph
 * (unit/changes.test.ts) and one in the lab can hold against what they see; docs/changes.md is made from it.
 */

/** A stack's configuration, its keys without the project. */
export type Configuration = Readonly<Record<string, unknown>>;

/** What a person does before the next `pulumi up`. */
export type Action =
  | { settings: (config: Configuration) => Configuration }
  /** Edits a file of the repository, or a key file. */
  | { file: string; edit: (text: string) => string }
  /** `pulumi up --replace` with the name of a resource. */
  | { replace: string };

/** Sorted names of resources. Those that are in none of the lists are left alone. */
export interface Expected {
  create: string[];
  replace: string[];
  update: string[];
  delete: string[];
}

export interface Row {
  /** As the table shows it. */
  name: string;
  /** What the stack is like before: the configuration that this makes of the one with two nodes. Default: that one. */
  from?: (config: Configuration) => Configuration;
  action: Action;
  expected: Expected;
  /** What a preview shows as updated too, and the update then leaves alone. */
  previewOnly?: string[];
  /** What goes, and Pulumi's preview leaves out, because it goes with something that is made anew. */
  notInPreview?: string[];
}

/** Key files for SSH that the rows use. A lab has its own in their places. */
export const keyFiles = ["/keys/first", "/keys/second"] as const;

/** A third Spark. */
const third = {
  name: "spark-3",
  host: "192.168.200.14",
  user: "aurora",
  hostKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIThirdThirdThirdThirdThirdThirdThirdThirdThirdThi",
  via: "spark-1",
  fabric: { interface: "enp1s0f0np0", address: "192.168.200.14", hcas: ["rocep1s0f0", "roceP2p1s0f0"] },
};

/** The worker's in the operator's network. */
const ownAddress = { host: "10.1.230.181", via: undefined };

/** Sets one value; undefined takes it out. */
function set(at: readonly (string | number)[], value: unknown): (config: Configuration) => Configuration {
  const within = (whole: unknown, [key, ...rest]: readonly (string | number)[]): unknown => {
    if (key === undefined) return value;
    const inner = within((whole as Record<string | number, unknown> | undefined)?.[key], rest);
    return Array.isArray(whole)
      ? whole.map((item: unknown, index) => (index === key ? inner : item))
      : { ...(whole as object | undefined), [key]: inner };
  };
  return (config) => within(config, at) as Configuration;
}

/** Another list of nodes. */
const nodes = (change: (list: object[]) => object[]) => (config: Configuration) => ({
  ...config,
  nodes: change(config["nodes"] as object[]),
});

/** The worker is reached without the head. */
const direct = nodes((list) => list.map((node, index) => (index === 1 ? { ...node, ...ownAddress } : node)));
const withThird = nodes((list) => [...list, third]);
const hub = set(["model", "source"], { kind: "hub", repository: "owner/a-model" });
const sentFrom = (folder: string) => set(["model", "source"], { kind: "operator", folder });
const withKey = set(["ssh", "privateKeyPath"], keyFiles[0]);
const commented = (text: string) => `${text}\n# A comment.\n`;

const benchmark = ["benchmark-model", "benchmark-run"];
/** The server, and what takes its container's id. */
const server = ["server-container", "server-gate", "server-smoke", "benchmark-model", "benchmark-run"];
/** What takes the id of any of Ray's containers. */
const behindRay = ["ray-gate", "fabric-all-reduce", ...server];
const engine = ["ray-spark-1", "ray-spark-2", ...behindRay];

/** The model where it is brought to the nodes. */
const weights = [
  "model-fetch",
  "model-key-spark-1",
  "model-receiver-spark-2",
  "model-copy",
  "model-spark-1",
  "model-spark-2",
];

/** These read the settings themselves, the second fewer of them. */
const preflight = "preflight-run";
const looks = [preflight, "fabric-all-reduce"];

const headSteps = [
  "spark-1-workspace",
  "image-pull",
  "image-fabric-key",
  "image-copy-spark-2",
  "model-spark-1",
  "ray-gate",
  "server-gate",
  "server-smoke",
  ...benchmark,
];
const workerSteps = ["spark-2-workspace", "image-authorize-spark-2", "model-spark-2"];
/** What goes over SSH, apart from Docker's own. */
const steps = [...headSteps, ...workerSteps];
/** All that is called by a node's name. */
const ownOfNode = (node: string) => [`${node}-docker`, `${node}-workspace`, `model-${node}`, `ray-${node}`];
/** The same of a worker, which gets the image from the head. */
const ownOfWorker = (node: string) => [
  ...ownOfNode(node),
  ...["authorize", "copy"].map((step) => `image-${step}-${node}`),
];

/** The lists of a row, sorted; those not given are empty. */
function expected(lists: Partial<Record<keyof Expected, readonly string[]>>): Expected {
  const sorted = (list: keyof Expected) => [...(lists[list] ?? [])].sort();
  return { create: sorted("create"), replace: sorted("replace"), update: sorted("update"), delete: sorted("delete") };
}

const without = (names: readonly string[], ...taken: readonly string[]) =>
  names.filter((name) => !taken.includes(name));

/** Every way to a node is another one, and nothing else. */
const everyConnection = expected({ update: [...looks, ...steps, "spark-1-docker", "spark-2-docker"] });
/** The same of the ways to the worker, one of which is the head's. */
const workerConnection = expected({ update: [...looks, ...workerSteps, "image-copy-spark-2", "spark-2-docker"] });

export const rows: Row[] = [
  {
    name: "a flag of the server (`server.extraArgs`)",
    action: { settings: set(["server", "extraArgs"], ["--enforce-eager"]) },
    expected: expected({ replace: server, update: [preflight] }),
  },
  {
    name: "`server.gpuMemoryUtilization`",
    action: { settings: set(["server", "gpuMemoryUtilization"], 0.8) },
    expected: expected({ replace: server, update: [preflight] }),
  },
  {
    // So short that the smoke step asks for less too.
    name: "`server.maxModelLen`",
    action: { settings: set(["server", "maxModelLen"], 1600) },
    expected: expected({ replace: server, update: [preflight] }),
  },
  {
    name: "an entry of `server.environment`",
    action: { settings: set(["server", "environment", "NCCL_DEBUG"], "INFO") },
    expected: expected({ replace: engine }),
  },
  {
    name: "`server.loadTimeoutMinutes`",
    action: { settings: set(["server", "loadTimeoutMinutes"], 50) },
    expected: expected({ update: [preflight, "server-gate"] }),
  },
  {
    name: "`model.name`",
    action: { settings: set(["model", "name"], "another-name") },
    expected: expected({ replace: server, update: looks }),
  },
  {
    name: "`model.path`",
    action: { settings: set(["model", "path"], "/home/aurora/models/another-model") },
    expected: expected({ replace: engine, update: [preflight, "model-spark-1", "model-spark-2"] }),
  },
  {
    name: "`model.source` set",
    action: { settings: hub },
    expected: expected({
      create: ["model-fetch", "model-key-spark-1", "model-receiver-spark-2", "model-copy"],
      replace: ["model-spark-1", "model-spark-2", ...server],
      update: looks,
    }),
  },
  {
    name: "`model.source.revision`",
    from: hub,
    action: { settings: set(["model", "source", "revision"], "another") },
    expected: expected({ replace: [...weights, ...server], update: looks }),
  },
  {
    name: "the newest commit of a branch (`--replace '**model-fetch'`)",
    from: hub,
    action: { replace: "model-fetch" },
    expected: expected({ replace: [...weights, ...server] }),
  },
  {
    name: "`model.source.folder`, the model from the operator's machine",
    from: sentFrom("~/models/one"),
    action: { settings: set(["model", "source", "folder"], "~/models/another") },
    expected: expected({
      replace: ["model-send", "model-list", ...without(weights, "model-fetch"), ...server],
      update: looks,
    }),
  },
  {
    name: "digest of `image`, the model from a hub",
    from: hub,
    action: { settings: set(["image"], `registry.example/vllm@sha256:${"f".repeat(64)}`) },
    expected: expected({
      replace: ["image-fabric-key", "image-authorize-spark-2", ...engine],
      update: [preflight, "image-pull", "image-copy-spark-2", "model-fetch"],
    }),
  },
  {
    name: "`huggingFaceToken` set, the model from a hub",
    from: hub,
    action: { settings: set(["huggingFaceToken"], "hf_first") },
    expected: expected({ replace: engine, update: ["model-fetch"] }),
  },
  {
    name: "a third node is added, the model from a hub",
    from: hub,
    action: { settings: withThird },
    expected: expected({
      create: [...ownOfWorker("spark-3"), "model-key-spark-2", "model-receiver-spark-3"],
      replace: engine,
      update: [preflight, "model-receiver-spark-2", "model-copy"],
    }),
  },
  {
    name: "digest of `image`",
    action: { settings: set(["image"], `registry.example/vllm@sha256:${"f".repeat(64)}`) },
    expected: expected({
      replace: ["image-fabric-key", "image-authorize-spark-2", ...engine],
      update: [preflight, "image-pull", "image-copy-spark-2"],
    }),
  },
  {
    name: "`registry.username` and `registryPassword` set",
    action: { settings: (config) => ({ ...config, registry: { username: "aurora" }, registryPassword: "pw" }) },
    expected: expected({ update: ["image-pull"] }),
  },
  {
    name: "`huggingFaceToken` set",
    action: { settings: set(["huggingFaceToken"], "hf_first") },
    expected: expected({ replace: engine }),
  },
  {
    name: "`huggingFaceToken` changed",
    from: set(["huggingFaceToken"], "hf_first"),
    action: { settings: set(["huggingFaceToken"], "hf_second") },
    expected: expected({ replace: engine }),
  },
  {
    name: "API key rotated",
    action: { replace: "server-api-key" },
    expected: expected({ replace: ["server-api-key", ...server] }),
  },
  {
    name: "Ray's token made anew",
    action: { replace: "ray-token" },
    expected: expected({ replace: ["ray-token", ...engine] }),
  },
  {
    name: "`fabric.address` of the worker",
    action: { settings: set(["nodes", 1, "fabric", "address"], "192.168.200.99") },
    expected: expected({ replace: engine, update: [preflight, "image-copy-spark-2"] }),
  },
  {
    name: "`fabric.interface` of the worker",
    action: { settings: set(["nodes", 1, "fabric", "interface"], "enp2s0f0np0") },
    expected: expected({ replace: ["ray-spark-2", ...behindRay], update: [preflight] }),
  },
  {
    name: "a scenario of the benchmark",
    action: {
      settings: set(
        ["benchmark", "scenarios"],
        [{ name: "short", requests: 1, concurrency: [1], inputTokens: 8, outputTokens: 8 }],
      ),
    },
    expected: expected({ replace: ["benchmark-run"] }),
  },
  {
    name: "`benchmark.tool`",
    action: { settings: set(["benchmark", "tool"], "llama-benchy") },
    expected: expected({ replace: ["benchmark-run"] }),
  },
  {
    name: "`benchmark.keepEarlier`",
    action: { settings: set(["benchmark", "keepEarlier"], true) },
    expected: expected({ update: ["benchmark-run"] }),
  },
  {
    name: "a threshold of the benchmark",
    action: {
      settings: set(
        ["benchmark", "thresholds"],
        [{ scenario: "single-stream", metric: "outputTokensPerSecond", atLeast: 1 }],
      ),
    },
    expected: expected({}),
  },
  {
    name: "benchmark disabled",
    action: { settings: set(["benchmark", "enabled"], false) },
    expected: expected({ delete: benchmark }),
  },
  {
    name: "`keepImages`",
    action: { settings: set(["keepImages"], true) },
    expected: expected({ update: ["spark-1-workspace", "spark-2-workspace"] }),
  },
  {
    name: "`preflight.allow`",
    action: { settings: set(["preflight", "allow"], ["driver-unequal"]) },
    expected: expected({ update: looks }),
  },
  {
    name: "`fabric.minimumGBps`",
    action: { settings: set(["fabric", "minimumGBps"], 10) },
    expected: expected({ update: looks }),
  },
  {
    name: "`ssh.privateKeyPath`",
    from: withKey,
    action: { settings: set(["ssh", "privateKeyPath"], keyFiles[1]) },
    expected: everyConnection,
  },
  {
    name: "the SSH key in the same file",
    from: withKey,
    action: { file: keyFiles[0], edit: (text) => text.replace("first", "later") },
    expected: expected({ update: steps }),
  },
  {
    name: "`ssh.connectTimeoutSeconds`",
    action: { settings: set(["ssh", "connectTimeoutSeconds"], 20) },
    expected: everyConnection,
  },
  {
    name: "`user` of the worker",
    action: { settings: set(["nodes", 1, "user"], "borealis") },
    expected: workerConnection,
  },
  {
    name: "`hostKey` of the worker",
    action: { settings: set(["nodes", 1, "hostKey"], third.hostKey) },
    expected: workerConnection,
  },
  {
    name: "`host` of the head",
    action: { settings: set(["nodes", 0, "host"], "10.1.230.182") },
    expected: everyConnection,
  },
  {
    name: "`hostKey` of the head",
    action: { settings: set(["nodes", 0, "hostKey"], third.hostKey) },
    expected: everyConnection,
  },
  {
    name: "the worker is reached directly (`host`, no `via`)",
    action: { settings: direct },
    expected: expected({ update: [...looks, ...workerSteps, "spark-2-docker"] }),
  },
  {
    name: "a third node is added",
    action: { settings: withThird },
    expected: expected({ create: ownOfWorker("spark-3"), replace: engine, update: [preflight] }),
  },
  {
    name: "the second node is taken out",
    action: { settings: nodes((list) => list.slice(0, 1)) },
    expected: expected({
      replace: ["ray-spark-1", ...without(behindRay, "fabric-all-reduce")],
      update: [preflight],
      delete: [...ownOfWorker("spark-2"), "image-fabric-key", "fabric-all-reduce"],
    }),
    notInPreview: ["fabric-all-reduce", "ray-spark-2"],
  },
  {
    name: "the worker has another `name`",
    action: { settings: set(["nodes", 1, "name"], "spark-9") },
    expected: expected({
      create: ownOfWorker("spark-9"),
      replace: behindRay,
      update: [preflight],
      delete: ownOfWorker("spark-2"),
    }),
  },
  {
    name: "the head has another `name`",
    action: {
      settings: nodes(([head, worker]) => [
        { ...head, name: "spark-9" },
        { ...worker, via: "spark-9" },
      ]),
    },
    expected: expected({
      create: ownOfNode("spark-9"),
      replace: ["ray-spark-2", ...behindRay],
      update: [preflight, "image-pull", "image-fabric-key", "image-copy-spark-2"],
      delete: ownOfNode("spark-1"),
    }),
    previewOnly: ["image-authorize-spark-2"],
  },
  {
    name: "the order of two workers",
    from: withThird,
    action: { settings: nodes(([head = {}, ...workers]) => [head, ...workers.reverse()]) },
    expected: expected({ update: [preflight, "fabric-all-reduce"] }),
  },
  {
    name: "head and worker change places",
    from: direct,
    action: { settings: nodes((list) => [...list].reverse()) },
    expected: expected({
      create: ["image-authorize-spark-1", "image-copy-spark-1"],
      replace: engine,
      update: [preflight, "image-pull", "image-fabric-key"],
      delete: ["image-authorize-spark-2", "image-copy-spark-2"],
    }),
  },
  {
    name: "a comment in `scripts/remote/wait_for_server.py`",
    action: { file: "scripts/remote/wait_for_server.py", edit: commented },
    expected: expected({ update: ["server-gate"] }),
  },
  {
    name: "a comment in `scripts/remote/fabric-key.sh`",
    action: { file: "scripts/remote/fabric-key.sh", edit: commented },
    expected: expected({ update: ["image-fabric-key"] }),
    previewOnly: ["image-authorize-spark-2"],
  },
  {
    name: "a comment in `scripts/remote/step.py`",
    action: { file: "scripts/remote/step.py", edit: commented },
    expected: expected({ update: steps }),
  },
  {
    name: "a comment in `scripts/remote/benchmark.py`",
    action: { file: "scripts/remote/benchmark.py", edit: commented },
    expected: expected({ update: ["benchmark-run"] }),
  },
  {
    name: "comments and empty lines in `scripts/engine/keep-running.sh`",
    action: { file: "scripts/engine/keep-running.sh", edit: (text) => `${commented(text)}\n\n  # Another one.\n` },
    expected: expected({}),
  },
];

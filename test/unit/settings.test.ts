import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { parse } from "shell-quote";
import { expect, test } from "vitest";
import { renderProblems } from "../../components/problems";
import { schema } from "../../components/schema";
import { checkConfiguration, parseSettings, readPrivateKey } from "../../components/settings";
import { configurationOf, runStack } from "./stack";

/** The working configuration with one value changed; undefined removes it. */
function having(at: (string | number)[], value: unknown): unknown {
  const config = structuredClone(configurationOf("dev")) as Record<string | number, unknown>;
  let inside = config;
  for (const part of at.slice(0, -1)) inside = (inside[part] ??= {}) as Record<string | number, unknown>;
  const last = at.at(-1) ?? "";
  if (value === undefined) Reflect.deleteProperty(inside, last);
  else inside[last] = value;
  return config;
}

function problemsOf(config: unknown) {
  const result = parseSettings(config);
  return "problems" in result ? result.problems : [];
}

test("the committed configurations are valid once filled in", () => {
  for (const stack of ["dev", "lab"] as const) expect(problemsOf(configurationOf(stack))).toEqual([]);
});

test("defaults", () => {
  const { nodes, image, model } = configurationOf("dev");
  expect(schema.parse({ nodes, image, model })).toMatchObject({
    accelerator: "gb10",
    ssh: { connectTimeoutSeconds: 15, connectAttempts: 3 },
    server: {
      port: 8000,
      reasoningParser: "qwen3",
      toolCallParser: "qwen3_coder",
      prefixCaching: true,
      extraArgs: [],
      environment: {},
      loadTimeoutMinutes: 40,
    },
    benchmark: {
      enabled: true,
      timeoutMinutes: 30,
      repeats: 3,
      scenarios: [
        { name: "single-stream", concurrency: [1] },
        { name: "prefill", concurrency: [1], inputTokens: 2048 },
        { name: "prefill-long", concurrency: [1], inputTokens: 16384 },
        { name: "load", concurrency: [1, 2, 4, 8, 16] },
        { name: "shared-prefix", concurrency: [4], prefixTokens: 2048 },
      ],
      thresholds: [],
      keepEarlier: false,
      onBreach: "fail",
    },
  });
});

// One row a mistake: where, the value, the key as it is named, a telling part of the message, the command that mends it.
const mistakes: [(string | number)[], unknown, string, RegExp, string][] = [
  [["nodes"], undefined, "nodes", /^missing$/, "in the stack's file: nodes: […] (docs/configuration.md)"],
  [["nodes"], [], "nodes", /no node given/, "in the stack's file: nodes: […] (docs/configuration.md)"],
  [
    ["nodes", 0, "hostKey"],
    undefined,
    "nodes[0].hostKey",
    /^missing$/,
    "pulumi config set --path 'nodes[0].hostKey' 'ecdsa-sha2-nistp256 AAAA…'",
  ],
  [
    ["nodes", 0, "hostKey"],
    "10.1.230.180 ssh-ed25519 AAAA",
    "nodes[0].hostKey",
    /not a public host key/,
    "pulumi config set --path 'nodes[0].hostKey' 'ecdsa-sha2-nistp256 AAAA…'",
  ],
  [["nodes", 1, "name"], "Spark 2", "nodes[1].name", /lower-case/, "pulumi config set --path 'nodes[1].name' spark-1"],
  [
    ["nodes", 1, "name"],
    "spark-1",
    "nodes[1].name",
    /another node has this name/,
    "pulumi config set --path 'nodes[1].name' spark-1",
  ],
  [
    ["nodes", 0, "host"],
    "-oProxyCommand=reboot",
    "nodes[0].host",
    /not a host name/,
    "pulumi config set --path 'nodes[0].host' 10.1.230.180",
  ],
  [
    ["model", "source"],
    { kind: "hub" },
    "model.source.repository",
    /`hub` needs it/,
    "pulumi config set --path model.source.repository Qwen/Qwen3.5-122B-A10B-FP8",
  ],
  [
    ["model", "source"],
    { kind: "path", endpoint: "https://hub.example" },
    "model.source.endpoint",
    /it is for `hub`/,
    "pulumi config rm --path model.source.endpoint",
  ],
  [
    ["model", "source"],
    { kind: "hub", repository: "a/b/c" },
    "model.source.repository",
    /owner\/name/,
    "pulumi config set --path model.source.repository Qwen/Qwen3.5-122B-A10B-FP8",
  ],
  [
    ["model", "source"],
    { kind: "hub", repository: "a/b", endpoint: "hub.example" },
    "model.source.endpoint",
    /not the URL of a hub/,
    "pulumi config set --path model.source.endpoint https://hub.example",
  ],
  [
    ["model", "source"],
    { kind: "operator" },
    "model.source.folder",
    /`operator` needs it/,
    "pulumi config set --path model.source.folder '~/models/my-model'",
  ],
  [
    ["model"],
    { name: "m", path: "/models/100%", source: { kind: "path" } },
    "model.path",
    /no `%`/,
    "pulumi config set --path model.path /home/aurora/models/my-model",
  ],
  [["nodes", 0, "port"], 0, "nodes[0].port", />=1/, "pulumi config set --path 'nodes[0].port' 22"],
  [["nodes", 0, "user"], "a b", "nodes[0].user", /not a user name/, "pulumi config set --path 'nodes[0].user' aurora"],
  [["nodes", 0, "via"], "spark-1", "nodes[0].via", /head is the first node/, "pulumi config rm --path 'nodes[0].via'"],
  [
    ["nodes", 1, "via"],
    "spark-9",
    "nodes[1].via",
    /those are: spark-1/,
    "pulumi config set --path 'nodes[1].via' spark-1",
  ],
  [
    ["nodes", 1, "via"],
    "spark-2",
    "nodes[1].via",
    /not a node that is reached directly/,
    "pulumi config set --path 'nodes[1].via' spark-1",
  ],
  [
    ["nodes", 1, "fabric", "address"],
    "192.168.200.12",
    "nodes[1].fabric.address",
    /each rank needs its own/,
    "pulumi config set --path 'nodes[1].fabric.address' 192.168.200.12",
  ],
  [
    ["nodes", 0, "fabric", "address"],
    "127.0.1.1",
    "nodes[0].fabric.address",
    /loopback/,
    "pulumi config set --path 'nodes[0].fabric.address' 192.168.200.12",
  ],
  [
    ["nodes", 0, "fabric", "address"],
    "192.168.200.0/24",
    "nodes[0].fabric.address",
    /not an IP address/,
    "pulumi config set --path 'nodes[0].fabric.address' 192.168.200.12",
  ],
  ...["^lo", "a,b", "lo", "", "eth0 eth1"].map((name): (typeof mistakes)[0] => [
    ["nodes", 0, "fabric", "interface"],
    name,
    "nodes[0].fabric.interface",
    name === "lo" ? /loopback/ : /not one network interface/,
    "pulumi config set --path 'nodes[0].fabric.interface' enp1s0f0np0",
  ]),
  [
    ["nodes", 0, "fabric", "hcas"],
    ["a,b"],
    "nodes[0].fabric.hcas[0]",
    /not an RDMA device/,
    "in the stack's file: nodes[0].fabric.hcas[0] (docs/configuration.md)",
  ],
  [["accelerator"], "h100", "accelerator", /gb10/, "pulumi config set --path accelerator gb10"],
  [
    ["image"],
    "vllm/vllm-openai:latest",
    "image",
    /pinned by digest/,
    "pulumi config set --path image registry.example/vllm@sha256:…",
  ],
  [
    ["model", "path"],
    "Qwen/Qwen3",
    "model.path",
    /not an absolute path/,
    "pulumi config set --path model.path /home/aurora/models/my-model",
  ],
  [
    ["server", "gpuMemoryUtilization"],
    85,
    "server.gpuMemoryUtilization",
    /<=1/,
    "pulumi config set --path server.gpuMemoryUtilization 0.85",
  ],
  [
    ["server", "pipelineParallelSize"],
    3,
    "server.pipelineParallelSize",
    /the 2 nodes can't be split into 3 equal stages/,
    "pulumi config set --path server.pipelineParallelSize 1",
  ],
  [
    ["server", "extraArgs"],
    ["--api_key=x"],
    "server.extraArgs[0]",
    /process list/,
    "pulumi config rm --path 'server.extraArgs[0]'",
  ],
  [
    ["server", "extraArgs"],
    ["-tp2"],
    "server.extraArgs[0]",
    /number of nodes/,
    "pulumi config rm --path 'server.extraArgs[0]'",
  ],
  [
    ["server", "maxModelLen"],
    null,
    "server.maxModelLen",
    /expected number/,
    "pulumi config set --path server.maxModelLen 65536",
  ],
  [["model", "path"], "/..", "model.path", /root/, "pulumi config set --path model.path /home/aurora/models/my-model"],
  [["model", "name"], "--help", "model.name", /hyphen/, "pulumi config set --path model.name my-model"],
  [
    ["nodes", 0, "fabric", "address"],
    "0:0:0:0:0:0:0:1",
    "nodes[0].fabric.address",
    /loopback/,
    "pulumi config set --path 'nodes[0].fabric.address' 192.168.200.12",
  ],
  ...["fe80::1", "FE80:0::1", "febf::1", "fe9a:1::"].map((address): (typeof mistakes)[0] => [
    ["nodes", 0, "fabric", "address"],
    address,
    "nodes[0].fabric.address",
    /link-local address means nothing without its interface: give the interface one of its own/,
    "pulumi config set --path 'nodes[0].fabric.address' 192.168.200.12",
  ]),
  [
    ["nodes", 0, "fabric", "address"],
    "fe80::1%eth0",
    "nodes[0].fabric.address",
    /not an IP address/,
    "pulumi config set --path 'nodes[0].fabric.address' 192.168.200.12",
  ],
  [
    ["nodes", 0, "fabric", "address"],
    "fd00::1",
    "nodes[0].fabric.address",
    /partly IPv4 and partly IPv6/,
    "pulumi config set --path 'nodes[0].fabric.address' 192.168.200.12",
  ],
  [["server", "port"], 6379, "server.port", /Ray's own port/, "pulumi config set --path server.port 8000"],
  [
    ["server", "extraArgs"],
    ["--api-key=secret"],
    "server.extraArgs[0]",
    /process list/,
    "pulumi config rm --path 'server.extraArgs[0]'",
  ],
  [
    ["server", "environment"],
    { VLLM_HOST_IP: "10.0.0.1" },
    "server.environment.VLLM_HOST_IP",
    /on every node/,
    "pulumi config rm --path server.environment.VLLM_HOST_IP",
  ],
  [
    ["server", "modelLen"],
    5,
    "server.modelLen",
    /no such key; did you mean `maxModelLen`\? known here: port, pipelineParallelSize/,
    "in the stack's file: rename it to `maxModelLen`",
  ],
  [
    ["benchmrk"],
    {},
    "benchmrk",
    /no such key; did you mean `benchmark`\? known here: nodes, ssh/,
    "in the stack's file: rename it to `benchmark`",
  ],
  [
    ["HuggingfaceToken"],
    "x",
    "HuggingfaceToken",
    /did you mean `huggingFaceToken`\? .*, huggingFaceToken, registryPassword$/,
    "in the stack's file: rename it to `huggingFaceToken`",
  ],
  [
    ["colour"],
    5,
    "colour",
    /^no such key; known here: .*, huggingFaceToken, registryPassword$/,
    "pulumi config rm --path colour",
  ],
  [
    ["preflight"],
    { allow: ["clock-skew", "driver-unequals"] },
    "preflight.allow[1]",
    /^no code of an error; docs\/troubleshooting\.md lists them; did you mean `driver-unequal`\?$/,
    "pulumi config set --path 'preflight.allow[1]' driver-unequal",
  ],
  // A warning need not be allowed.
  ...["page-cache", "", 5, null, {}].map((code): (typeof mistakes)[0] => [
    ["preflight"],
    { allow: [code] },
    "preflight.allow[0]",
    /^no code of an error; docs\/troubleshooting\.md lists them$/,
    "pulumi config rm --path 'preflight.allow[0]'",
  ]),
  [
    ["benchmark", "scenarios"],
    [{ name: "long", requests: 1, concurrency: [1], inputTokens: 65536, outputTokens: 2 }],
    "benchmark.scenarios[0].inputTokens",
    /makes 65538 tokens, over server.maxModelLen 65536/,
    "pulumi config set --path 'benchmark.scenarios[0].inputTokens' 1024",
  ],
  [
    ["benchmark", "scenarios"],
    [{ name: "shared", requests: 1, concurrency: [1], inputTokens: 1, prefixTokens: 65534, outputTokens: 2 }],
    "benchmark.scenarios[0].inputTokens",
    /makes 65537 tokens, over server.maxModelLen 65536/,
    "pulumi config set --path 'benchmark.scenarios[0].inputTokens' 1024",
  ],
  ...[[2, 2], [4, 1], []].map((concurrency): (typeof mistakes)[0] => [
    ["benchmark", "scenarios"],
    [{ name: "load", requests: 1, concurrency, inputTokens: 8, outputTokens: 2 }],
    "benchmark.scenarios[0].concurrency",
    concurrency.length === 0 ? /^no level given$/ : /^not rising$/,
    "in the stack's file: benchmark.scenarios[0].concurrency: [1, 2, 4, 8] (docs/configuration.md)",
  ]),
  [
    ["benchmark", "thresholds"],
    [{ scenario: "lode", metric: "ttftMilliseconds", atMost: 5 }],
    "benchmark.thresholds[0].scenario",
    /^no scenario has this name; there are: single-stream, prefill, prefill-long, load, shared-prefix$/,
    "pulumi config set --path 'benchmark.thresholds[0].scenario' single-stream",
  ],
  [
    ["benchmark", "thresholds"],
    [{ scenario: "load", concurrency: 3, metric: "ttftMilliseconds", atMost: 5 }],
    "benchmark.thresholds[0].concurrency",
    /^no level of load; its levels are 1, 2, 4, 8, 16$/,
    "pulumi config set --path 'benchmark.thresholds[0].concurrency' 1",
  ],
  [
    ["benchmark", "thresholds"],
    [{ scenario: "load", metric: "ttftMilliseconds" }],
    "benchmark.thresholds[0]",
    /^no bound: atLeast, atMost or maxWorsePercent$/,
    "in the stack's file: benchmark.thresholds[0] (docs/configuration.md)",
  ],
];

test.each(mistakes)("%j = %j is named %s", (at, value, key, message, fix) => {
  const problems = problemsOf(having(at, value));
  expect(problems.map((problem) => problem.key)).toEqual([key]);
  expect(problems[0]?.message).toMatch(message);
  // Compared as words: there are several ways to quote the same command.
  expect(parse(problems[0]?.fix ?? "")).toEqual(parse(fix));
});

test("mistakes of shape and of relation are told together", () => {
  const config = having(["nodes", 0, "fabric", "interface"], "^lo") as { nodes: { name: string }[]; image: string };
  config.image = "a:b";
  config.nodes[1] = { ...config.nodes[1], name: "spark-1" };
  const problems = problemsOf(config);
  expect(problems.map(({ key }) => key)).toEqual(["nodes[0].fabric.interface", "image", "nodes[1].name"]);
  expect(renderProblems(problems)).toMatch(
    /^3 problems in the configuration; nothing was changed\.\n\n {2}nodes\[0\]\.fabric\.interface = "\^lo"\n {4}not one network interface/,
  );
});

test("a value that may be a secret is told whole, as Pulumi knows it, or not at all", () => {
  const told = (value: unknown) => renderProblems(problemsOf(having(["server", "environment", "A"], value)));
  expect(told("é'\"\\" + "x".repeat(190) + "e\u0301")).toContain(
    `server.environment.A = "é'"\\${"x".repeat(190)}e\u0301"\n`,
  );
  for (const secret of [`${"canary".repeat(40)}e\u0301`, "canary\ncanary e\u0301"]) {
    expect(told(secret)).toContain(`server.environment.A = (a value of ${secret.length + 2} characters)\n`);
    expect(told(secret)).not.toContain("canary");
  }
});

test("an example that is just what is wrong is not told as the cure", () => {
  const config = having(["nodes", 1, "fabric", "address"], "192.168.200.12");
  expect(renderProblems(problemsOf(config))).toMatch(
    /^ {4}mend: pulumi config set --path nodes\\\[1\\\]\.fabric\.address ANOTHER-VALUE$/m,
  );
});

test.each(["", "a\0b", "e\u0301", "\uf900"])(
  "an argument that Docker would refuse or change is refused: %j",
  (word) => {
    const problems = problemsOf(having(["server", "extraArgs"], ["--x", word]));
    expect(problems.map(({ key }) => key)).toEqual(["server.extraArgs[1]"]);
  },
);

test("a number spelt as a string, as `pulumi config set --path` stores fractions, is a number", () => {
  const result = parseSettings(having(["server", "gpuMemoryUtilization"], "0.9"));
  expect("settings" in result && result.settings.server.gpuMemoryUtilization).toBe(0.9);
});

test("of the default scenarios those are measured that the context has room for", () => {
  const names = (length: number) => {
    const result = parseSettings(having(["server", "maxModelLen"], length));
    return "settings" in result && result.settings.benchmark.scenarios.map(({ name }) => name);
  };
  expect(names(16385)).toEqual(["single-stream", "prefill", "load", "shared-prefix"]);
  expect(names(1152)).toEqual(["single-stream", "load"]);
  const config = having(["server", "maxModelLen"], 1024) as Record<string, unknown>;
  expect(problemsOf(config).map(({ key, message }) => [key, message])).toEqual([
    [
      "benchmark.scenarios[0].inputTokens",
      "with prefixTokens and outputTokens makes 1152 tokens, over server.maxModelLen 1024",
    ],
  ]);
  expect(problemsOf({ ...config, benchmark: { enabled: false } })).toEqual([]);
});

test("what is measured by default goes with the tool", () => {
  const config = having(["benchmark", "tool"], "llama-benchy") as Record<string, unknown>;
  const result = parseSettings(config);
  expect("settings" in result && result.settings.benchmark.scenarios).toEqual([
    {
      name: "pp2048-tg128",
      requests: 4,
      concurrency: [1, 2, 4],
      inputTokens: 2048,
      prefixTokens: 0,
      outputTokens: 128,
    },
  ]);
  const scenarios = [
    { name: "a", requests: 1, concurrency: [1], inputTokens: 8, prefixTokens: 0, outputTokens: 2 },
    { name: "b", requests: 1, concurrency: [1], inputTokens: 8, prefixTokens: 64, outputTokens: 2 },
  ];
  const problems = problemsOf({ ...config, benchmark: { tool: "llama-benchy", scenarios } });
  expect(problems.map(({ key, value, message }) => [key, value, message])).toEqual([
    [
      "benchmark.scenarios[1].prefixTokens",
      64,
      "prompts of llama-benchy share nothing: benchmark.tool vllm-bench has such",
    ],
  ]);
  expect(problemsOf({ ...config, benchmark: { scenarios } })).toEqual([]);
  const thresholds = [{ scenario: "a", metric: "tgTokensPerSecond", atLeast: 1 }];
  const by = (tool: string) =>
    problemsOf({ ...config, benchmark: { tool, scenarios: scenarios.slice(0, 1), thresholds } });
  expect(by("llama-benchy")).toEqual([]);
  expect(by("vllm-bench").map(({ key, message }) => [key, message])).toEqual([
    ["benchmark.thresholds[0].metric", "only benchmark.tool llama-benchy has this figure"],
  ]);
});

test("values are taken as they are meant: numbers as text, addresses and paths in one spelling", () => {
  const config = having(["server", "environment"], { NCCL_IB_GID_INDEX: 3, NCCL_DEBUG: true }) as {
    server: object;
    model: object;
    nodes: { fabric: object }[];
  };
  config.server = { ...config.server, extraArgs: ["--max-lora-rank", 16] };
  config.model = { ...config.model, path: "/models//tiny/" };
  config.nodes.forEach((node, index) => {
    node.fabric = { ...node.fabric, address: `FD00:0:0::${index + 1}` };
  });
  const result = parseSettings(config);
  if ("problems" in result) throw new Error(renderProblems(result.problems));
  const { server, model, nodes } = result.settings;
  expect(server.environment).toEqual({ NCCL_IB_GID_INDEX: "3", NCCL_DEBUG: "true" });
  expect(server.extraArgs).toEqual(["--max-lora-rank", "16"]);
  expect(model.path).toBe("/models/tiny");
  expect(nodes.map(({ fabric }) => fabric.address)).toEqual(["fd00::1", "fd00::2"]);
});

test.each(["fec0::", "fe8::", "fd00:fe80::"])("%s is not link-local", (address) => {
  const config = having([], undefined) as { nodes: { fabric: { address: string } }[] };
  config.nodes.forEach((node, index) => {
    node.fabric.address = `${address}${index + 1}`;
  });
  expect(problemsOf(config)).toEqual([]);
});

test("two spellings of one address are one address", () => {
  const config = having([], undefined) as { nodes: { fabric: { address: string } }[] };
  config.nodes.forEach((node, index) => {
    node.fabric.address = ["fd00::1", "FD00:0::1"][index] ?? "";
  });
  expect(problemsOf(config).map(({ key, message }) => [key, message])).toEqual([
    ["nodes[1].fabric.address", "another node has this fabric address: each rank needs its own"],
  ]);
});

test("any JSON is judged without a crash, and every problem has a place and a cure", () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.constantFrom(...Object.keys(schema.shape)), (value, key) => {
      for (const { key: place, message, fix } of problemsOf({ ...configurationOf("dev"), [key]: value })) {
        expect([place, message, fix]).not.toContain("");
      }
    }),
  );
});

test("a bad configuration ends the program with one message and no resource", async () => {
  await expect(runStack("dev", { ...configurationOf("dev"), image: "a:b", accelerator: "h100" })).rejects.toThrow(
    /^2 problems in the configuration/,
  );
});

test("private keys: readable, absent, locked, not a key", () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "keys-"));
  try {
    const file = (name: string, passphrase: string, ...options: string[]) => {
      execFileSync("ssh-keygen", ["-q", "-N", passphrase, "-f", path.join(folder, name), ...options]);
      return path.join(folder, name);
    };
    const open = file("open", "", "-t", "ed25519");
    expect(readPrivateKey(open)).toEqual({ key: fs.readFileSync(open, "utf8") });
    expect(readPrivateKey(undefined)).toEqual({ key: undefined });
    const message = (name: string) => {
      const result = readPrivateKey(name);
      return "problem" in result ? result.problem.message : undefined;
    };
    expect(message(file("locked", "a long word", "-t", "ed25519"))).toMatch(/passphrase/);
    expect(message(file("old", "a long word", "-t", "rsa", "-m", "PEM"))).toMatch(/passphrase/);
    expect(message(file("pkcs8", "a long word", "-t", "rsa", "-m", "PKCS8"))).toMatch(/passphrase/);
    expect(message(`${open}.pub`)).toMatch(/not a private key/);
    expect(message(path.join(folder, "absent"))).toMatch(/ENOENT/);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});

test.each([
  [
    { registry: { username: "aurora" } },
    [
      "registryPassword",
      "missing; registry.username and registryPassword are a login together",
      "pulumi config set --secret registryPassword PASSWORD",
    ],
  ],
  [
    { registryPassword: "pw" },
    [
      "registry.username",
      "missing; registry.username and registryPassword are a login together",
      "pulumi config set --path registry.username \\$oauthtoken",
    ],
  ],
])("of a login both halves are wanted: %j", (half, expected) => {
  const checked = checkConfiguration({ ...configurationOf("dev"), ...half });
  expect("problems" in checked ? checked.problems.map(({ key, message, fix }) => [key, message, fix]) : []).toEqual([
    expected,
  ]);
  expect(
    checkConfiguration({ ...configurationOf("dev"), registry: { username: 123456 }, registryPassword: "pw" }),
  ).not.toHaveProperty("problems");
});

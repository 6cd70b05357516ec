import * as net from "node:net";
import { z } from "zod";
import { type Path, type Problem, removeCommand, setCommand, spellPath, valueAt } from "./problems";
import { reservedVariables } from "./rank";
import { rayPorts } from "./ray";
import { ipAddress, numeric } from "./schema";

/**
 * The values that are held against each other. A value of the wrong shape counts as absent here:
 * schema.ts has reported it, and the rest can still be judged in the same run.
 */
const absent = <T extends z.ZodType>(type: T) => type.optional().catch(undefined);
const count = numeric(z.number().min(1));
const list = <T extends z.ZodType>(type: T) => z.array(type).catch([]);
const related = z.object({
  model: z
    .object({
      path: absent(z.string()),
      source: absent(
        z.object({
          kind: absent(z.string()),
          repository: absent(z.string()),
          endpoint: absent(z.string()),
          folder: absent(z.string()),
        }),
      ),
    })
    .catch({}),
  nodes: list(
    z
      .object({
        name: absent(z.string()),
        host: absent(z.string()),
        port: absent(count),
        via: absent(z.string()),
        fabric: z.object({ address: absent(ipAddress) }).catch({}),
      })
      .catch({ fabric: {} }),
  ),
  server: z
    .object({
      port: absent(count),
      pipelineParallelSize: absent(count),
      maxModelLen: absent(count),
      extraArgs: list(absent(z.string())),
      environment: z.record(z.string(), z.unknown()).catch({}),
    })
    .catch({ extraArgs: [], environment: {} }),
  benchmark: z
    .object({
      enabled: absent(z.boolean()),
      tool: absent(z.string()),
      scenarios: list(
        z
          .object({
            name: absent(z.string()),
            inputTokens: absent(count),
            prefixTokens: absent(count),
            outputTokens: absent(count),
            concurrency: list(absent(count)),
          })
          .catch({ concurrency: [] }),
      ),
      thresholds: list(
        z.object({ scenario: absent(z.string()), concurrency: absent(count), metric: absent(z.string()) }).catch({}),
      ),
    })
    .catch({ scenarios: [], thresholds: [] }),
});

/** Arguments of `vllm serve` that the program sets, and from what. */
const ownArguments: Readonly<Record<string, string>> = {
  "--model": "model.path",
  "--served-model-name": "model.name",
  "--host": "nothing: the API listens on every address of the head",
  "--port": "server.port",
  "--api-key": "nothing: the key is made by the program, and an argument is seen in every process list",
  "--tensor-parallel-size": "the number of nodes and server.pipelineParallelSize",
  "-tp": "the number of nodes and server.pipelineParallelSize",
  "--pipeline-parallel-size": "server.pipelineParallelSize",
  "-pp": "server.pipelineParallelSize",
  "--distributed-executor-backend": "nothing: it is Ray, which the program converges",
  "--max-model-len": "server.maxModelLen",
  "--gpu-memory-utilization": "server.gpuMemoryUtilization",
  "--max-num-seqs": "server.maxNumSeqs",
  "--max-num-batched-tokens": "server.maxNumBatchedTokens",
  "--reasoning-parser": "server.reasoningParser",
  "--tool-call-parser": "server.toolCallParser",
  "--enable-auto-tool-choice": "server.toolCallParser",
  "--enable-prefix-caching": "server.prefixCaching",
  "--no-enable-prefix-caching": "server.prefixCaching",
};

/** Indices of the entries whose value stood earlier in the list. */
function repeats<T>(items: readonly T[], pick: (item: T) => unknown): number[] {
  const values = items.map(pick);
  return values.flatMap((value, index) => (value !== undefined && values.indexOf(value) < index ? [index] : []));
}

/** Longest sequence of a scenario, tokens. */
export function scenarioTokens(
  of: Partial<Record<"inputTokens" | "prefixTokens" | "outputTokens", number | undefined>>,
): number {
  const { inputTokens = 0, prefixTokens = 0, outputTokens = 0 } = of;
  return prefixTokens + inputTokens + outputTokens;
}

/**
 * The problems between values: repeated names, jumps that lead nowhere, arguments set twice.
 *
 * @param raw the configuration, of any shape
 */
export function relationProblems(raw: unknown): Problem[] {
  const { nodes, model, server, benchmark } = related
    .catch({
      nodes: [],
      model: {},
      server: { extraArgs: [], environment: {} },
      benchmark: { scenarios: [], thresholds: [] },
    })
    .parse(raw);
  const problems: Problem[] = [];
  const report = (at: Path, message: string, fix = setCommand(at)) => {
    problems.push({ key: spellPath(at), value: valueAt(raw, at), message, fix });
  };

  for (const index of repeats(nodes, (node) => node.name))
    report(["nodes", index, "name"], "another node has this name");
  for (const index of repeats(nodes, (node) => node.fabric.address)) {
    report(["nodes", index, "fabric", "address"], "another node has this fabric address: each rank needs its own");
  }
  for (const index of repeats(nodes, ({ via, host, port }) => host && `${via ?? ""} ${host} ${port ?? 22}`)) {
    report(["nodes", index, "host"], "another node is reached at this host and port");
  }
  nodes.forEach(({ via }, index) => {
    if (via === undefined) return;
    const at = ["nodes", index, "via"];
    const direct = nodes.flatMap((node, other) =>
      other !== index && (other === 0 || node.via === undefined) && node.name !== undefined ? [node.name] : [],
    );
    if (index === 0) report(at, "the head is the first node and is reached directly", removeCommand(at));
    else if (!direct.includes(via)) report(at, `not a node that is reached directly; those are: ${direct.join(", ")}`);
  });

  if (
    new Set(nodes.flatMap(({ fabric }) => (fabric.address === undefined ? [] : [net.isIP(fabric.address)]))).size > 1
  ) {
    report(["nodes", 0, "fabric", "address"], "the nodes' fabric addresses are partly IPv4 and partly IPv6");
  }

  const { path = "", source } = model;
  if (source !== undefined && /[%\\\r\n]|\s$/.test(path)) {
    report(
      ["model", "path"],
      "with model.source: no `%`, backslash or line break, and no blank at the end, which rsync would change",
    );
  }
  const owners = { repository: "hub", endpoint: "hub", folder: "operator" } as const;
  for (const [key, kind] of Object.entries(owners) as [keyof typeof owners, string][]) {
    const at = ["model", "source", key];
    if (source?.kind === undefined) continue;
    if (source.kind !== kind && source[key] !== undefined)
      report(at, `\`${source.kind}\` has none: it is for \`${kind}\``, removeCommand(at));
    if (source.kind === kind && source[key] === undefined && key !== "endpoint")
      report(at, `missing: \`${kind}\` needs it`);
  }

  const stages = server.pipelineParallelSize ?? 1;
  if (nodes.length % stages !== 0) {
    report(["server", "pipelineParallelSize"], `the ${nodes.length} nodes can't be split into ${stages} equal stages`);
  }
  if (server.port !== undefined && rayPorts(true).includes(server.port)) {
    report(["server", "port"], `Ray's own ports on the head are ${rayPorts(true).join(", ")}`);
  }
  server.extraArgs.forEach((argument, index) => {
    // vLLM takes --api_key for --api-key, and -tp2 for -tp 2.
    const flag = (argument?.split("=", 1)[0] ?? "").replaceAll("_", "-").replace(/^(-[a-z]+)\d+$/, "$1");
    const owner = ownArguments[flag];
    const at = ["server", "extraArgs", index];
    if (owner !== undefined) report(at, `the program sets this argument itself, from ${owner}`, removeCommand(at));
  });
  for (const name of Object.keys(server.environment).filter((name) => reservedVariables.has(name))) {
    const at = ["server", "environment", name];
    report(at, "the program sets this variable itself, on every node", removeCommand(at));
  }

  for (const index of repeats(benchmark.scenarios, (scenario) => scenario.name)) {
    report(["benchmark", "scenarios", index, "name"], "another scenario has this name");
  }
  if (benchmark.enabled !== false)
    benchmark.scenarios.forEach((scenario, index) => {
      const total = scenarioTokens(scenario);
      if (server.maxModelLen === undefined || total <= server.maxModelLen) return;
      report(
        ["benchmark", "scenarios", index, "inputTokens"],
        `with prefixTokens and outputTokens makes ${total} tokens, over server.maxModelLen ${server.maxModelLen}`,
      );
    });
  benchmark.scenarios.forEach(({ prefixTokens = 0 }, index) => {
    if (benchmark.tool !== "llama-benchy" || prefixTokens === 0) return;
    const at = ["benchmark", "scenarios", index, "prefixTokens"];
    report(at, "prompts of llama-benchy share nothing: benchmark.tool vllm-bench has such", removeCommand(at));
  });
  benchmark.thresholds.forEach(({ scenario: name, concurrency, metric }, index) => {
    const at = ["benchmark", "thresholds", index];
    if (benchmark.tool !== "llama-benchy" && (metric === "ppTokensPerSecond" || metric === "tgTokensPerSecond"))
      report([...at, "metric"], "only benchmark.tool llama-benchy has this figure");
    const scenario = benchmark.scenarios.find((each) => each.name === name);
    // Without any, that is the mistake.
    if (benchmark.scenarios.length === 0) return;
    if (scenario === undefined) {
      const known = benchmark.scenarios.flatMap((each) => each.name ?? []).join(", ");
      report([...at, "scenario"], `no scenario has this name; there are: ${known}`);
    } else if (concurrency !== undefined && !scenario.concurrency.includes(concurrency))
      report([...at, "concurrency"], `no level of ${String(name)}; its levels are ${scenario.concurrency.join(", ")}`);
  });
  return problems;
}

import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { type BenchmarkTool, benchmarkTools, parseBenchmark } from "../../components/benchmark";
import { routeTo, sshOptions } from "../../components/connection";
import type { ImageOutput } from "../../components/containerImage";
import type { FabricOutput } from "../../components/fabric";
import type { AllReduceResult } from "../../components/preflight/allReduce";
import { type NodeSettings, schema } from "../../components/schema";
import { boot, execOn, powerCut } from "../../scripts/virtual-sparks/hosts";
import { bytesOf } from "../../scripts/virtual-sparks/links";
import type { Link } from "../../scripts/virtual-sparks/network";
import { leftovers } from "../../scripts/virtual-sparks/lab";
import { nodeDirectory } from "../../scripts/virtual-sparks/paths";
import { pulumiEnvironment } from "../../scripts/virtual-sparks/pulumi";
import { PROJECT } from "../../scripts/virtual-sparks/project";
import { stepArguments, stepProgram } from "../../components/step";
import { attempt, type RunResult } from "../../scripts/virtual-sparks/run";
import { until } from "../../scripts/virtual-sparks/wait";
import { operatorKey } from "../../scripts/virtual-sparks/keys";
import { MODEL_PATH } from "../../scripts/virtual-sparks/node-disk";
import { type Node, OPERATOR, PREFIX, topology } from "../../scripts/virtual-sparks/topology";
import { Hub } from "../support/hub";
import { deployment, measure, timingCase, withKnownTiming } from "./benchmark";
import { expectedPreview, having, labRows, previewed, updated } from "./changes";
import { lab, labSettings, must, pulumiIn, stackFile, transcript } from "./run";

// One deployment on two virtual Sparks, from nothing to nothing. The cases build on each other, in this order.

const nodes = topology(2);
const [head, worker] = nodes as [Node, Node];
const containers = ["dgx-spark-lab-ray", "dgx-spark-lab-server"];

/** The numbers under `Resources:` at the end of what Pulumi prints, e.g. `["32 unchanged"]`. */
function resourceCounts(output: string): string[] {
  const lines = output.split("\n");
  const from = lines.lastIndexOf("Resources:") + 1;
  const to = lines.findIndex((line, index) => index >= from && line.trim() === "");
  return lines.slice(from, to).map((line) => line.trim());
}

async function outputs(): Promise<Record<string, unknown>> {
  return JSON.parse(await must(lab("pulumi", "stack", "output", "--json", "--show-secrets"))) as Record<
    string,
    unknown
  >;
}

/** Ids and start times of the deployment's containers: the same as long as nothing was restarted. */
async function running(): Promise<string[]> {
  const inspect = (node: Node, names: string[]) =>
    must(execOn(node, ["docker", "inspect", "--format", "{{.Id}} {{.State.StartedAt}}", ...names]));
  return [await inspect(head, containers), await inspect(worker, containers.slice(0, 1))];
}

/** Bytes that a node's link carried, both ways. */
async function bytes(node: Node, link: Link): Promise<number> {
  const { sent, received } = await bytesOf(node, link);
  return sent + received;
}

/** Programs that run on a node, without those that come and go with a look at it. */
async function programs(node: Node): Promise<string[]> {
  const names = (await must(execOn(node, ["ps", "-eo", "comm="]))).split("\n").map((name) => name.trim());
  return [...new Set(names)].filter((name) => name !== "" && name !== "ps").sort();
}

interface Chat {
  status: number;
  answer: { choices: { message: Record<string, unknown> }[]; usage: { completion_tokens: number } };
}

async function chat(key: string | undefined): Promise<Chat> {
  const { endpoint, model } = await outputs();
  const response = await fetch(`${String(endpoint)}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(key !== undefined && { authorization: `Bearer ${key}` }) },
    body: JSON.stringify({ model, messages: [{ role: "user", content: "Who are you?" }], max_tokens: 16 }),
  });
  return { status: response.status, answer: (await response.json()) as Chat["answer"] };
}

/** Secrets of the settings, which must be found nowhere else. */
const canaries = {
  huggingFaceToken: "hf_canary0123456789",
  environment: "canary-of-the-environment",
  registryPassword: "canary-of-the-registry",
};

let firstUp: RunResult;
let programsBefore: string[][];

beforeAll(async () => {
  await must(lab("down"));
  await must(lab("hosts", "up"));
  programsBefore = await Promise.all(nodes.map(programs));
  await must(lab("pulumi", "config", "set", "--secret", "huggingFaceToken", canaries.huggingFaceToken));
  // The lab's registry takes any.
  await must(lab("pulumi", "config", "set", "--path", "registry.username", "aurora"));
  await must(lab("pulumi", "config", "set", "--secret", "registryPassword", canaries.registryPassword));
  await must(lab("pulumi", "config", "set", "--secret", "--path", "server.environment.A_TOKEN", canaries.environment));
  firstUp = await lab("up");
});

afterAll(async () => {
  await must(lab("down"));
  expect(await leftovers()).toEqual([]);
});

test("lab up ends with an endpoint, an answer and figures", () => {
  expect([firstUp.code, firstUp.stderr.replace(/^ {2}.*\n/gm, "")]).toEqual([
    0,
    expect.stringMatching(/^lab up: /m) as string,
  ]);
  expect(firstUp.stdout).toMatch(/^endpoint: {2}http:\/\/10\.1\.230\.180:8000\/v1$/m);
  expect(firstUp.stdout).toMatch(/^question: {2}.+\n(reasoning: .+\n)?answer: {4}.+$/m);
  expect(firstUp.stdout).toMatch(/^single-stream +1 +4 +[\d.]+ \[/m);
  expect(firstUp.stdout).toMatch(/^load +4 +8 +[\d.]+ \[/m);
});

test("the load was followed in the output", () => {
  expect(firstUp.stdout).toMatch(/server-gate creating \(\d+s\) \d+ s: starting the engine/);
  expect(firstUp.stdout).toMatch(/server-gate created \(\d+s\) \d+ s: tiny-qwen3-moe answers/);
});

test("outputs have their documented shape, and the key is nowhere in what was printed", async () => {
  const { endpoint, model, apiKey, nodes: facts, fabric, benchmark, image } = await outputs();
  const { engine, pull, copies } = image as ImageOutput;
  expect(engine).toEqual({
    vllm: expect.stringMatching(/^\d+\.\d+/) as string,
    ray: expect.stringMatching(/^\d+\.\d+/) as string,
    python: expect.stringMatching(/^3\.\d+/) as string,
  });
  // Packed and unpacked, as Docker tells them in the lab.
  expect(pull?.bytes).toBeGreaterThan(100e6);
  expect(copies).toMatchObject([{ from: "spark-1", to: "spark-2" }]);
  expect(copies[0]?.bytes).toBeGreaterThan(pull?.bytes ?? Infinity);
  expect([endpoint, model]).toEqual(["http://10.1.230.180:8000/v1", "tiny-qwen3-moe"]);
  expect(apiKey).toMatch(/^[A-Za-z0-9]{40}$/);
  expect(firstUp.stdout + firstUp.stderr).not.toContain(apiKey);
  expect(facts).toMatchObject([
    { name: "spark-1", host: "10.1.230.180", fabricAddress: "192.168.200.12", facts: { hostname: "spark-1" } },
    { name: "spark-2", host: "192.168.200.13", fabricAddress: "192.168.200.13", facts: { hostname: "spark-2" } },
  ]);
  const { paths, allReduce } = fabric as FabricOutput;
  expect(paths.map(({ from, to, mtuBytes }) => [from, to, mtuBytes])).toEqual([
    ["spark-1", "spark-2", 9000],
    ["spark-2", "spark-1", 9000],
  ]);
  expect(allReduce).toMatchObject({ backend: "gloo", transport: { "spark-1": null, "spark-2": null } });
  expect(allReduce?.busGigabytesPerSecond).toBeGreaterThan(0);
  const { scenarios } = parseBenchmark(JSON.stringify(benchmark));
  expect(
    scenarios.map(({ name, levels }) => [name, ...levels.map(({ concurrency, requests }) => [concurrency, requests])]),
  ).toEqual([
    ["single-stream", [1, 4]],
    ["load", [2, 4], [4, 8]],
  ]);
});

test("the endpoint answers with the key, and refuses without", async () => {
  const { apiKey } = await outputs();
  const answered = await chat(String(apiKey));
  expect(answered.status).toBe(200);
  expect(answered.answer.usage.completion_tokens).toBeGreaterThan(0);
  expect((await chat(undefined)).status).toBe(401);
  expect((await chat("wrong")).status).toBe(401);
});

test("each Spark holds one rank, and they talk over the fabric alone", async () => {
  for (const node of nodes) {
    const ranks = (await must(execOn(node, ["ps", "-eo", "args="])))
      .split("\n")
      .filter((line) => line.startsWith("ray::RayWorkerProc"));
    expect(ranks).toHaveLength(1);
  }
  const count = async () => ({
    fabric: await bytes(head, "fabric"),
    workerFabric: await bytes(worker, "fabric"),
    management: await bytes(head, "management"),
  });
  const before = await count();
  const smoke = { script: "smoke.py", args: ["dgx-spark-lab-server", "8000", "tiny-qwen3-moe", "64", "tools"] };
  const directory = "/tmp/smoke";
  const place = { directory, node: "spark-1", step: "smoke", timeoutSeconds: 60, mode: "create" } as const;
  // From the head itself, so that the request is not on the management link.
  await must(execOn(head, stepArguments(smoke, place), { input: stepProgram([smoke.script]) }));
  const after = await count();
  expect(after.fabric - before.fabric).toBeGreaterThan(100_000);
  expect(after.workerFabric - before.workerFabric).toBeGreaterThan(100_000);
  expect(after.management - before.management).toBeLessThan(2_000);
});

const close = (value: number | undefined, expected: number) => {
  expect(Math.abs((value ?? NaN) / expected - 1)).toBeLessThan(0.05);
};

/** Cases that are measured, at one request at once; those after the first three are of chats alone. */
const known = {
  plain: { tokens: 20, tpot: 50, itl: 50, perSecond: 20 / (0.2 + 19 * 0.05) },
  // Of the last four tokens only the first is waited for.
  "four tokens a piece": { tokens: 24, tpot: 50, itl: undefined, perSecond: 24 / (0.2 + 20 * 0.05) },
  "a stall of half a second": { tokens: 22, tpot: (21 * 50 + 500) / 21, itl: 50, perSecond: 22 / (0.7 + 21 * 0.05) },
  "thinking by its old name": { tokens: 18, tpot: 50, itl: 50, perSecond: 18 / (0.2 + 17 * 0.05) },
  "thinking alone": { tokens: 16, tpot: 50, itl: 50, perSecond: 16 / (0.2 + 15 * 0.05) },
};

/** Cases that are refused, with what is said last. */
const refusals: Record<BenchmarkTool, Record<number, RegExp>> = {
  "vllm-bench": {
    10: /: 2 of 2 answers have \d+ tokens, 10 were asked for$/,
    11: /: an answer came in 12 pieces and has 11 tokens: /,
    12: /: 2 of 2 answers have \d+ tokens, 12 were asked for$/,
    13: /: 0 of 2 requests completed, 2 failed\. Service Unavailable$/,
    14: /: all pieces of each answer came at once: /,
  },
  "llama-benchy": {
    10: /: 0 of 2 requests completed, 2 failed\. the answer has no count of its tokens at its end/,
    12: /: 0 of 2 requests completed, 2 failed\. the answer has no count of its tokens at its end/,
    13: /: 0 of 2 requests completed, 2 failed\. HTTP 503: /,
    14: /: all pieces of each answer came at once: /,
    30: /: 0 of 2 requests completed, 2 failed\. 67% of the answer came in the first of 11 pieces: /,
  },
};

// Again, since the machine may be busy with something else just then.
describe.each(benchmarkTools)("known timing, by %s", { retry: 2 }, (tool) => {
  const measured = async (...scenarios: ReturnType<typeof timingCase>[]) =>
    parseBenchmark(await must(withKnownTiming(head, () => measure(head, tool, scenarios)))).scenarios;

  test("it is measured right", async () => {
    const cases = Object.values(known).slice(0, tool === "vllm-bench" ? 3 : undefined);
    const found = await measured(...cases.map(({ tokens }) => timingCase(tokens)));
    expect(found).toHaveLength(cases.length);
    for (const [index, { tpot, itl, perSecond }] of cases.entries()) {
      const level = found[index]?.levels[0];
      // The piece that has a role and no token came 200 ms before.
      close(level?.ttftMilliseconds.median, 200);
      close(level?.tpotMilliseconds.median, tpot);
      close(level?.outputTokensPerSecond.median, perSecond);
      if (itl === undefined) expect(level?.itlMilliseconds).toBeNull();
      else close(level?.itlMilliseconds?.median, itl);
      if (tool === "vllm-bench") continue;
      close(level?.ppTokensPerSecond?.median, 64 / 0.2);
      close(level?.tgTokensPerSecond?.median, 1000 / tpot);
    }
  });

  test("what is no good measurement is refused", async () => {
    const cases = Object.entries(refusals[tool]);
    const refused = await withKnownTiming(head, () =>
      Promise.all(cases.map(([tokens]) => measure(head, tool, [timingCase(Number(tokens))]))),
    );
    expect(refused.map(({ code, stdout }) => [code, stdout])).toEqual(cases.map(() => [1, ""]));
    const said = refused.map(({ stderr }) => stderr.trimEnd().split("\n").at(-2));
    for (const [index, [, message]] of cases.entries()) expect(said[index]).toMatch(message);
  });

  test("levels end where the server makes no more, or answers too late", async () => {
    // It makes two answers at once, and the others wait for as long as an answer takes.
    const sweep = { requests: 4, concurrency: [1, 2, 4, 8] };
    const [grown, late] = await measured(
      timingCase(21, { ...sweep, name: "grown" }),
      timingCase(21, { ...sweep, name: "late", ttftLimitMilliseconds: 500 }),
    );
    for (const scenario of [grown, late]) {
      const levels = scenario?.levels ?? [];
      expect(levels.map(({ concurrency }) => concurrency)).toEqual([1, 2, 4]);
      for (const { concurrency, outputTokensPerSecond } of levels)
        close(outputTokensPerSecond.median, (Math.min(concurrency, 2) * 21) / 1.2);
      close(levels[2]?.ttftMilliseconds.p99, 1400);
      if (tool === "llama-benchy") close(levels[1]?.tgTokensPerSecond?.median, 40);
    }
    expect(grown?.ended).toBe("throughput stopped growing");
    expect([late?.peakConcurrency, late?.ended]).toEqual([2, "TTFT over its bound"]);
  });
});

test("the deployment's own chats are measured by llama-benchy", { retry: 2 }, async () => {
  const chat = timingCase(32, { concurrency: [1, 2] });
  const { method, scenarios } = parseBenchmark(await must(measure(head, "llama-benchy", [chat], deployment)));
  expect(method.tool).toBe("llama-benchy 0.4.0");
  expect(method.checks).toContain("the server generated these tokens and no others");
  expect(scenarios[0]?.levels[0]?.tgTokensPerSecond?.median).toBeGreaterThan(0);
  await must(execOn(head, ["sh", "-c", "rm -rf /tmp/known-timing*"]));
});

test("Ray does nothing for those who don't have its token", async () => {
  const client = (seconds: number, ...variables: string[]) =>
    execOn(head, [
      ...["docker", "exec", ...variables.flatMap((variable) => ["--env", variable]), "dgx-spark-lab-ray"],
      ...["timeout", String(seconds), "python3", "-c"],
      'import ray; ray.init("ray://127.0.0.1:10001"); print(len(ray.nodes()), "nodes")',
    ]);
  const probe = fs.readFileSync("scripts/remote/ray_nodes.py");
  const nodesOf = (...variables: string[]) =>
    execOn(
      worker,
      [
        ...["docker", "exec", "--interactive", ...variables.flatMap((variable) => ["--env", variable])],
        ...["dgx-spark-lab-ray", "timeout", "60", "python3", "-", "192.168.200.12:6379", "0"],
      ],
      { input: probe.toString() },
    );
  expect((await must(client(60))).trim().split("\n").at(-1)).toBe("2 nodes");
  expect(await must(nodesOf())).toBe('["192.168.200.12", "192.168.200.13"]\n');
  for (const variables of [["RAY_AUTH_TOKEN=wrong"], ["RAY_AUTH_TOKEN=", "RAY_AUTH_MODE=disabled"]])
    expect(await nodesOf(...variables)).toMatchObject({
      code: 1,
      stdout: "",
      stderr: expect.stringContaining("InvalidAuthToken") as string,
    });
  // Ray's own server for such clients hangs.
  expect(await client(10, "RAY_AUTH_TOKEN=wrong")).toMatchObject({ code: 124, stdout: "" });
});

test("an all-reduce is told again while the server runs, and is refused when it is too slow", async () => {
  const settings = labSettings();
  const { fabric } = await outputs();
  const step = (changes: object) =>
    attempt(["./scripts/preflight", "--step", "all-reduce"], {
      input: JSON.stringify({ deployment: "lab", settings: { ...settings, ...changes } }),
    });
  const again = JSON.parse(await must(step({}))) as AllReduceResult;
  expect(again).toEqual({ figures: (fabric as FabricOutput).allReduce, problems: [] });
  const { code, stderr } = await step({ fabric: { minimumGBps: 1000 } });
  expect(code).toBe(1);
  expect(stderr).toMatch(/^ {2}error {2}spark-1 {2}all-reduce-slow\n {4}found: {4}[\d.]+ GB\/s\n/m);
});

test("no secret is in a process list, a file, a log, a container's arguments, or open in the stack", async () => {
  const { apiKey } = await outputs();
  const privateKey = (await operatorKey()).privateText.split("\n")[2] ?? "";
  const rayToken = (
    await must(execOn(head, ["docker", "exec", "dgx-spark-lab-ray", "printenv", "RAY_AUTH_TOKEN"]))
  ).trim();
  const secrets = [String(apiKey), privateKey, rayToken, ...Object.values(canaries)];
  expect(secrets.filter((secret) => secret.length > 15)).toHaveLength(6);
  const state = await must(lab("pulumi", "stack", "export"));
  for (const secret of secrets) expect(state).not.toContain(secret);
  for (const node of nodes) {
    const look = (...argv: string[]) => must(execOn(node, argv));
    const processes = await look("ps", "-eo", "args=");
    const containerIds = (await look("docker", "ps", "--all", "--quiet")).trim().split("\n");
    const inspected = JSON.parse(await look("docker", "inspect", ...containerIds)) as { Config: { Env?: unknown } }[];
    for (const { Config } of inspected) delete Config.Env;
    const logs = await Promise.all(containerIds.map((id) => look("sh", "-c", 'docker logs "$0" 2>&1', id)));
    const files = await Promise.all(
      secrets.map((secret) =>
        look(
          "sh",
          "-c",
          'grep -rlsF -- "$0" /home /root /tmp /var/tmp /var/log /var/lib/docker/volumes || true',
          secret,
        ),
      ),
    );
    expect(files).toEqual(secrets.map(() => ""));
    const shown = [processes, JSON.stringify(inspected), ...logs].join("\n");
    for (const secret of secrets) expect(shown).not.toContain(secret);
  }
  // With what every command so far has printed.
  await lab("pulumi", "preview", "--diff", "--refresh");
  for (const secret of secrets) expect(transcript.join("")).not.toContain(secret);
});

test("a threshold that is not kept fails the update or warns; nothing is measured again, and the server and the outputs stay", async () => {
  const before = await outputs();
  const kept = await running();
  const thresholds = [{ scenario: "single-stream", metric: "outputTokensPerSecond", atLeast: 100_000 }];
  const upWith = (onBreach: string) =>
    having(
      (config) => ({ ...config, benchmark: { ...(config["benchmark"] as object), thresholds, onBreach } }),
      () => lab("pulumi", "up", "--yes"),
    );
  const failed = await upWith("fail");
  expect(failed.code).not.toBe(0);
  expect(failed.stdout).toContain("expected  at least 100000 per second");
  expect(failed.stdout).not.toMatch(/^ +at .*:\d+:\d+/m);
  const warned = await upWith("warn");
  expect(warned.stdout).toContain("expected  at least 100000 per second");
  expect([warned.code, resourceCounts(warned.stdout)]).toEqual([0, ["32 unchanged"]]);
  expect([await outputs(), await running()]).toEqual([before, kept]);
});

test("another stack uses the endpoint, and is not deployed where the model is too slow for it", async () => {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "consumer-"));
  const folder = path.join(root, "examples/consumer");
  fs.cpSync("examples/consumer", folder, { recursive: true });
  fs.copyFileSync("tsconfig.json", path.join(root, "tsconfig.json"));
  fs.symlinkSync(path.resolve("node_modules"), path.join(root, "node_modules"));
  const file = path.join(folder, "client.env");
  const app = pulumiIn(folder);
  try {
    await must(app("stack", "select", "--create", "app"));
    await must(app("config", "set", "serving", "organization/dgx-spark-serving/lab"));
    await must(app("config", "set", "minimumTokensPerSecond", "100000"));
    const refused = await app("up", "--yes", "--skip-preview");
    expect(refused.code).not.toBe(0);
    expect(refused.stdout).toMatch(
      /error: not deployed: [\d.]+ tokens\/s in "single-stream", this application needs 100000\./,
    );
    expect(refused.stdout).not.toMatch(/^ +at /m);
    expect(fs.existsSync(file)).toBe(false);
    await must(app("config", "set", "minimumTokensPerSecond", "0.1"));
    await must(app("up", "--yes", "--skip-preview"));
    const { endpoint, model, apiKey } = await outputs();
    expect(fs.readFileSync(file, "utf8")).toBe(
      `OPENAI_BASE_URL=${String(endpoint)}\nOPENAI_MODEL=${String(model)}\nOPENAI_API_KEY=${String(apiKey)}\n`,
    );
    expect(fs.statSync(file).mode & 0o777).toBe(0o600);
    expect(await must(app("stack", "export"))).not.toContain(apiKey);
    await must(app("destroy", "--yes", "--skip-preview"));
    expect(fs.existsSync(file)).toBe(false);
    await must(app("stack", "rm", "--yes", "app"));
  } finally {
    fs.rmSync(root, { recursive: true });
  }
});

test("a model from a hub is fetched once, goes over the fabric, is served, and comes again where somebody changed it", async () => {
  const names = (await must(execOn(head, ["ls", MODEL_PATH]))).trim().split("\n");
  const files = Object.fromEntries(
    names.map((name) => [name, fs.readFileSync(path.join(nodeDirectory(head.name), "root", MODEL_PATH, name))]),
  );
  const total = Object.values(files).reduce((sum, { length }) => sum + length, 0);
  const hub = new Hub("lab/tiny");
  hub.token = canaries.huggingFaceToken;
  hub.commit(files);
  const source = { kind: "hub", repository: "lab/tiny", endpoint: await hub.listen(OPERATOR.address) };
  const folder = "/home/aurora/models/from a hub";
  const sums = async (node: Node) =>
    (await must(execOn(node, ["sh", "-c", `cd '${folder}' && sha256sum *`]))).trim().split("\n");
  const owners = (node: Node) => must(execOn(node, ["find", folder, "!", "-user", "aurora"]));
  try {
    await having(
      (config) => ({
        ...config,
        model: { path: folder, name: "tiny-from-a-hub", source },
        benchmark: { enabled: false },
      }),
      async () => {
        const before = await bytesOf(worker, "fabric");
        await must(lab("pulumi", "up", "--yes"));
        const moved = (await bytesOf(worker, "fabric")).received - before.received;
        const { weights, model } = await outputs();
        const copy = { from: "spark-1", to: "spark-2", bytes: total };
        const shape = {
          files: names.length,
          bytes: total,
          commit: hub.head,
          download: { bytes: total },
          copies: [copy],
        };
        expect(weights).toMatchObject(shape);
        expect(model).toBe("tiny-from-a-hub");
        expect((await chat(String((await outputs())["apiKey"]))).status).toBe(200);
        expect(Object.values(hub.sent).reduce((sum, sent) => sum + sent)).toBe(total);
        expect(moved).toBeGreaterThan(total);
        expect(await sums(worker)).toEqual(await sums(head));
        expect([await owners(head), await owners(worker)]).toEqual(["", ""]);

        hub.sent = {};
        expect(await updated()).toEqual({ create: [], replace: [], update: [], delete: [] });
        expect(hub.sent).toEqual({});

        // A byte of one file, its size and time as they were.
        const harm =
          'touch -r "$1" /tmp/time; printf x | dd of="$1" bs=1 seek=9000 conv=notrunc; touch -r /tmp/time "$1"';
        await must(execOn(worker, ["sh", "-c", harm, "sh", `${folder}/model.safetensors`]));
        const found = await lab("preflight", "--json");
        expect(found.stdout).toContain("model-changed");
        expect(found.stdout).toContain("model.safetensors in /home/aurora/models/from a hub changed or is missing");
        await must(lab("pulumi", "up", "--yes", "--replace", "**model-*"));
        expect(await sums(worker)).toEqual(await sums(head));
        expect(hub.sent).toEqual({});
        const { copies } = (await outputs())["weights"] as { copies: { bytes: number }[] };
        expect(copies.map((each) => each.bytes)).toEqual([files["model.safetensors"]?.length]);
      },
    );
    expect((await lab("preflight")).code).toBe(0);
  } finally {
    hub.close();
    await must(lab("up"));
    for (const node of nodes) await must(execOn(node, ["rm", "-r", folder]));
  }
  expect((await outputs())["model"]).toBe("tiny-qwen3-moe");
});

test("a second lab up changes nothing", async () => {
  const before = await running();
  const stdout = await must(lab("up"));
  expect(resourceCounts(stdout)).toEqual(["32 unchanged"]);
  expect(await running()).toEqual(before);
});

test("refresh finds nothing, and up after it changes nothing", async () => {
  expect(resourceCounts(await must(lab("pulumi", "refresh", "--yes")))).toEqual(["32 unchanged"]);
  expect(resourceCounts(await must(lab("pulumi", "up", "--yes")))).toEqual(["32 unchanged"]);
});

test("from another checkout, in another folder, nothing changes", async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "another-checkout-"));
  try {
    const program = path.join(folder, "program");
    for (const file of (await must(attempt(["git", "ls-files", "-z"]))).split("\0").filter((name) => name !== ""))
      if (fs.existsSync(file)) fs.cpSync(file, path.join(program, file));
    fs.symlinkSync(path.resolve("node_modules"), path.join(program, "node_modules"));
    const project = parse(fs.readFileSync(`${PROJECT}/Pulumi.yaml`, "utf8")) as object;
    fs.writeFileSync(path.join(folder, "Pulumi.yaml"), stringify({ ...project, main: program }));
    fs.copyFileSync(stackFile, path.join(folder, path.basename(stackFile)));
    const there = pulumiIn(folder);
    await must(there("stack", "select", "lab"));
    expect(resourceCounts(await must(there("preview")))).toEqual(["32 unchanged"]);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});

test("every step runs again and changes nothing", async () => {
  const before = await running();
  const state = JSON.parse(await must(lab("pulumi", "stack", "export", "--show-secrets"))) as {
    deployment: {
      resources: {
        type: string;
        urn: string;
        outputs?: { update?: string; stdin?: string | { plaintext: string }; stdout?: string };
      }[];
    };
  };
  const steps = state.deployment.resources
    .filter(({ type }) => type === "command:remote:Command")
    .map(({ outputs = {} }) => ({ create: "", update: "", stdin: "", stdout: "", ...outputs }));
  expect(steps).toHaveLength(13);
  for (const { create, update, stdin: sent, stdout } of steps) {
    const stdin = typeof sent === "string" ? sent : (JSON.parse(sent.plaintext) as string);
    const [, node = "", step = ""] = /^python3 -B - \S+ (\S+) (\S+)/.exec(create) ?? [];
    const run = (line: string) => must(attempt(["./scripts/lab", "ssh", node, "sh", "-c", line], { input: stdin }));
    // What is known is told again as it was; what repairs looks again, and changes nothing.
    const known = JSON.parse(stdout) as object;
    const nothingMoved = "bytes" in known && { bytes: 0, seconds: expect.any(Number) as number };
    const expected = / again \S+\.(sh|py)/.test(update) ? known : { ...known, changed: false, ...nothingMoved };
    expect([step, JSON.parse(await run(update))]).toEqual([step, expected]);
    // The benchmark measures each time that it is asked to.
    if (step === "benchmark-run") continue;
    const again = JSON.parse(await run(create)) as { changed?: boolean };
    expect([step, again.changed ?? false]).toEqual([step, false]);
  }
  expect(await running()).toEqual(before);
});

const mainRows = [
  "`server.extraArgs`",
  "server.environment",
  "scenario",
  "`fabric.address`",
  "keepImages",
  "hostKey",
  "third",
];

test.each(labRows.filter(({ name }) => mainRows.some((part) => name.includes(part))))(
  "a preview shows what the table says: $name",
  async (row) => {
    if (!("settings" in row.action)) throw new Error("no change of settings");
    expect(await having(row.action.settings, () => previewed())).toEqual(expectedPreview(row));
  },
);

test("another connection runs nothing again and restarts nothing", async () => {
  const row = labRows.find(({ name }) => name.includes("connectTimeoutSeconds"));
  if (row === undefined || !("settings" in row.action)) throw new Error("no such row");
  const before = await running();
  expect(await having(row.action.settings, () => updated())).toEqual(row.expected);
  expect(await updated()).toEqual(row.expected);
  expect(await running()).toEqual(before);
});

test("wrong settings are told all at once, without a stack trace, and nothing is changed", async () => {
  const before = await running();
  const file = stackFile;
  const kept = fs.readFileSync(file);
  try {
    await must(lab("pulumi", "config", "set", "--path", "nodes[1].fabric.interface", "^lo"));
    await must(lab("pulumi", "config", "set", "--path", "server.gpuMemoryUtilization", "85"));
    await must(lab("pulumi", "config", "set", "image", "vllm:latest"));
    const { code, stdout, stderr } = await lab("pulumi", "up", "--yes");
    expect(code).not.toBe(0);
    const told = stdout + stderr;
    expect(told).toContain("3 problems in the configuration; nothing was changed.");
    for (const problem of [
      'nodes[1].fabric.interface = "^lo"',
      "server.gpuMemoryUtilization = 85",
      'image = "vllm:latest"',
    ])
      expect(told).toContain(problem);
    expect(told.match(/mend: pulumi config set/g)?.length).toBeGreaterThanOrEqual(3);
    expect(told).not.toMatch(/^\s+at .*:\d+:\d+/m);
  } finally {
    fs.writeFileSync(file, kept);
  }
  expect(await running()).toEqual(before);
});

test("host keys are checked on every hop, by Docker's ssh and by steps", async () => {
  const file = stackFile;
  const kept = fs.readFileSync(file, "utf8");
  const settings = schema.parse(labSettings());
  const [right, other] = settings.nodes.map(({ hostKey }) => hostKey);
  const connect = (keys: (string | undefined)[]) => {
    const named = settings.nodes.map((node, index) => ({ ...node, hostKey: keys[index] ?? "" }));
    const target = named[1] as NodeSettings;
    const options = sshOptions(routeTo(target, named), settings.ssh);
    return attempt(["ssh", ...options, "-l", target.user, "--", target.host, "hostname"]);
  };
  expect(await connect([right, other])).toMatchObject({ code: 0, stdout: "spark-2\n" });
  for (const keys of [
    [right, right],
    [other, other],
  ]) {
    const { code, stdout, stderr } = await connect(keys);
    expect([code, stdout]).toEqual([255, ""]);
    expect(stderr).toContain("Host key verification failed");
  }

  const before = await running();
  try {
    await must(lab("pulumi", "config", "set", "--path", "nodes[0].hostKey", other ?? ""));
    const { code, stdout } = await lab("pulumi", "up", "--yes");
    expect(code).not.toBe(0);
    expect(stdout).toMatch(/error {2}spark-1 {2}ssh-host-key/);
    expect(stdout).toMatch(/error {2}spark-2 {2}ssh-jump-host/);
  } finally {
    fs.writeFileSync(file, kept);
  }
  await must(lab("pulumi", "up", "--yes"));
  expect(await running()).toEqual(before);
});

test("a Spark whose share of the cores is limited keeps to it, with its containers", async () => {
  expect((await lab("cpus", "few")).stderr).toContain("few: give cores, at least 0.01, or off");
  await must(lab("cpus", "0.2"));
  const lines = [
    "import time",
    "begun = time.monotonic()",
    "while time.process_time() < 0.4: pass",
    "print(time.monotonic() - begun)",
  ];
  const burn = ["python3", "-c", lines.join("\n")];
  for (const where of [[], ["docker", "exec", containers[0] ?? ""]]) {
    expect(Number(await must(lab("ssh", worker.name, ...where, ...burn)))).toBeGreaterThan(1.2);
  }
  await must(lab("cpus", "off"));
  expect(fs.readFileSync(`/sys/fs/cgroup/cpu/${PREFIX}/${worker.name}/cpu.cfs_quota_us`, "utf8")).toBe("-1\n");
});

test("after a reboot of both Sparks the server comes back by itself, and up changes nothing", async () => {
  await must(lab("hosts", "down"));
  await must(lab("hosts", "up"));
  const { apiKey } = await outputs();
  const answers = () =>
    chat(String(apiKey)).then(
      ({ status }) => status === 200,
      () => false,
    );
  const end = Date.now() + 5 * 60_000;
  while (!(await answers())) {
    if (Date.now() > end) throw new Error("no answer within 5 minutes of the reboot");
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
  expect(resourceCounts(await must(lab("pulumi", "up", "--yes")))).toEqual(["32 unchanged"]);
});

test("a server that is gone, with a leftover under its name, is made anew and measured", async () => {
  // As a run leaves it that was killed while Docker made the container.
  await must(execOn(head, ["docker", "rm", "--force", "dgx-spark-lab-server"]));
  await must(lab("pulumi", "refresh", "--yes"));
  const image = (
    await must(execOn(head, ["docker", "inspect", "--format", "{{.Config.Image}}", "dgx-spark-lab-ray"]))
  ).trim();
  const create = (deployment: string) =>
    must(
      execOn(head, [
        ...[
          "docker",
          "create",
          "--name",
          "dgx-spark-lab-server",
          "--label",
          `dgx-spark-serving.deployment=${deployment}`,
        ],
        ...["--entrypoint", "true", image],
      ]),
    );
  const format = "{{.Repository}}:{{.Tag}}";
  await create("another");
  const refused = await lab("pulumi", "up", "--yes");
  expect(refused.code).not.toBe(0);
  expect(refused.stdout).toContain("container dgx-spark-lab-server is there already and is not of deployment lab");
  await must(execOn(head, ["docker", "rm", "--force", "dgx-spark-lab-server"]));
  await create("lab");
  const tag = (await must(execOn(head, ["docker", "image", "ls", "--format", format, "dgx-spark-serving"]))).trim();
  await must(execOn(head, ["docker", "image", "rm", tag]));
  const without = await lab("pulumi", "up", "--yes");
  expect(without.code).not.toBe(0);
  expect(without.stdout).toContain(`image ${tag} is no longer on this node`);
  expect(resourceCounts(await must(lab("pulumi", "up", "--yes", "--replace", "**image-*")))).toEqual([
    "+ 1 created",
    "+-8 replaced",
    "9 changes. 23 unchanged",
  ]);
  const { apiKey } = await outputs();
  expect((await chat(String(apiKey))).status).toBe(200);
});

test("after random faults one up --refresh brings all of it, and nothing else", async () => {
  // Docker restarted and a rank killed while something changes, which no other case does. A longer run is made by hand.
  const { code, stdout } = await lab("chaos", "--kills", "2", "--seed", "51");
  expect(stdout).toMatch(/^seed 51: 2 kills, lost 0, orphan 0, repair 0, stuck 0, /m);
  expect(code).toBe(0);
});

test("an engine that keeps dying stays down and says why; up makes it anew, with another key, beside a renamed worker", async () => {
  const engine = "^\\S*python3\\S* \\S*/vllm serve";
  for (let times = 1; times <= 5; times++) {
    expect(
      await until(async () => (await execOn(head, ["pkill", "-KILL", "-f", engine])).code === 0, 120_000, 300),
    ).toBe(true);
    expect(await until(async () => (await execOn(head, ["pgrep", "-f", engine])).code !== 0, 120_000, 300)).toBe(true);
  }
  const form = "{{.State.Status}} {{.State.ExitCode}}";
  const state = () => must(execOn(head, ["docker", "inspect", "--format", form, "dgx-spark-lab-server"]));
  expect(await until(async () => (await state()) === "exited 0\n", 120_000, 300)).toBe(true);
  const log = await must(execOn(head, ["sh", "-c", "docker logs --tail 1 dgx-spark-lab-server 2>&1"]));
  expect(log).toContain("the engine ended 5 times within 120 minutes and is not started again");

  const { apiKey: former } = await outputs();
  await must(lab("pulumi", "config", "set", "--path", "nodes[1].name", "spark-b"));
  await must(lab("pulumi", "up", "--yes", "--refresh", "--replace", "**server-api-key"));
  const { apiKey } = await outputs();
  expect(apiKey).not.toBe(former);
  expect((await chat(String(apiKey))).status).toBe(200);
  expect((await chat(String(former))).status).toBe(401);
  expect(resourceCounts(await must(lab("pulumi", "up", "--yes")))).toEqual(["32 unchanged"]);
  // What the old name's deletions left to the new one.
  expect(await must(execOn(worker, ["ls", "/home/aurora/.dgx-spark-serving-lab/nodes"]))).toMatch(/^spark-b@\S*\n$/);
  expect(await must(execOn(worker, ["docker", "image", "ls", "--quiet", "dgx-spark-serving"]))).not.toBe("");
});

test("a node that is gone for good is forgotten, the others serve on, and one of its name is taken in anew", async () => {
  await powerCut(worker);
  const { nodes: kept } = labSettings() as { nodes: unknown[] };
  await having(
    (config) => ({ ...config, nodes: kept.slice(0, 1) }),
    async () => {
      // It can't be reached, so its deletions can't be made.
      const failed = await lab("pulumi", "up", "--yes");
      expect(failed.code).not.toBe(0);
      expect(failed.stdout).toMatch(/192\.168\.200\.13/);
      const forget = ["./scripts/forget-node", "-C", PROJECT, "spark-b"];
      const shown = await attempt(forget, { env: pulumiEnvironment() });
      expect(shown.code).toBe(1);
      expect(shown.stdout).toContain("  spark-b-workspace\n");
      await must(attempt([...forget, "--yes"], { env: pulumiEnvironment() }));
      await must(lab("pulumi", "up", "--yes", "--refresh"));
      const known = await must(lab("pulumi", "stack", "export"));
      expect([known.includes('::spark-1-workspace"'), known.includes("::spark-b")]).toEqual([true, false]);
      const { apiKey } = await outputs();
      expect((await chat(String(apiKey))).status).toBe(200);
      expect(await must(execOn(head, ["docker", "inspect", "dgx-spark-lab-server"]))).toContain(
        "--tensor-parallel-size=1",
      );
    },
  );
  // It comes back with all that it had, which nobody knows any more.
  await boot(worker);
  await must(lab("pulumi", "up", "--yes", "--refresh"));
  const { apiKey } = await outputs();
  expect((await chat(String(apiKey))).status).toBe(200);
  expect(resourceCounts(await must(lab("pulumi", "up", "--yes")))).toEqual(["32 unchanged"]);
  expect((await must(execOn(worker, ["docker", "ps", "--all", "--quiet"]))).trim().split("\n")).toHaveLength(1);
});

describe("with both Sparks off", () => {
  beforeAll(async () => {
    await Promise.all(nodes.map(powerCut));
  });
  afterAll(async () => {
    await Promise.all(nodes.map(boot));
  });

  test("a preview works", async () => {
    expect(resourceCounts(await must(lab("pulumi", "preview")))).toEqual(["32 unchanged"]);
  });

  test("a preview of an empty stack works", async () => {
    // A project folder of its own, so that the lab's stays on its stack.
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "empty-stack-"));
    const empty = pulumiIn(folder);
    fs.copyFileSync(`${PROJECT}/Pulumi.yaml`, `${folder}/Pulumi.yaml`);
    fs.copyFileSync(`${PROJECT}/Pulumi.lab.yaml`, `${folder}/Pulumi.empty.yaml`);
    try {
      await must(empty("stack", "select", "--create", "empty"));
      expect(resourceCounts(await must(empty("preview")))).toEqual(["+ 32 to create"]);
      await must(empty("stack", "rm", "empty", "--yes"));
    } finally {
      fs.rmSync(folder, { recursive: true });
    }
  });

  test("an up fails and names the hop", async () => {
    await must(lab("pulumi", "config", "set", "--path", "server.extraArgs[2]", "--", "--no-enable-log-requests"));
    const { code, stdout } = await lab("pulumi", "up", "--yes");
    expect(code).not.toBe(0);
    expect(stdout).toMatch(/10\.1\.230\.180/);
    await must(lab("pulumi", "config", "rm", "--path", "server.extraArgs[2]"));
  });

  test("a destroy fails, and still knows what is on them", async () => {
    const { code, stdout } = await lab("pulumi", "destroy", "--yes");
    expect(code).not.toBe(0);
    expect(stdout).toMatch(/10\.1\.230\.180/);
    const known = await must(lab("pulumi", "stack", "export"));
    for (const name of ["server-container", "ray-spark-1", "spark-1-workspace", "spark-b-workspace"])
      expect(known).toContain(`::${name}"`);
  });
});

test("destroy leaves no container, volume, image, file or process of ours", async () => {
  await must(lab("pulumi", "destroy", "--yes"));
  for (const [index, node] of nodes.entries()) {
    expect(await must(execOn(node, ["docker", "ps", "--all", "--quiet"]))).toBe("");
    expect(await must(execOn(node, ["docker", "volume", "ls", "--quiet"]))).toBe("");
    expect(await must(execOn(node, ["docker", "image", "ls", "--quiet", "dgx-spark-serving"]))).toBe("");
    expect(await must(execOn(node, ["sh", "-c", "ls -A /home/aurora | grep dgx-spark || true"]))).toBe("");
    expect(
      await must(execOn(node, ["sh", "-c", "grep dgx-spark-serving /home/aurora/.ssh/authorized_keys || true"])),
    ).toBe("");
    expect(await programs(node)).toEqual(programsBefore[index]);
  }
});

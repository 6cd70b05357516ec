import { expect, test } from "vitest";
import { localTag } from "../../components/container";
import { allReduce, configurationOf, digest, figures, machines, preflight, runStack } from "./stack";

test.each(["dev", "lab"] as const)("the resource graph of stack %s is the golden one", async (stack) => {
  const { resources } = await runStack(stack, configurationOf(stack));
  await expect(`${JSON.stringify(resources, null, 1)}\n`).toMatchFileSnapshot(`../golden/${stack}.json`);
});

test("outputs are the endpoint, the model, the key, the nodes and the figures", async () => {
  const { outputs } = await runStack("dev", configurationOf("dev"));
  expect(Object.keys(outputs).sort()).toEqual(["apiKey", "benchmark", "endpoint", "fabric", "image", "model", "nodes"]);
  expect(outputs["endpoint"]).toBe("http://10.1.230.180:8000/v1");
  expect(outputs["model"]).toBe("Qwen/Qwen3.5-122B-A10B-FP8");
  expect(outputs["apiKey"]).toBe("a-generated-key");
  expect(outputs["benchmark"]).toEqual({
    ...figures,
    summary: "single-stream 31.5 tokens/s at 1, TTFT 15.9 ms, TPOT 15.9 ms",
    comparison: null,
  });
  expect(outputs["fabric"]).toEqual({ paths: preflight.fabric, allReduce });
  expect(outputs["nodes"]).toEqual([
    { name: "spark-1", host: "10.1.230.180", fabricAddress: "192.168.200.12", facts: machines[0] },
    { name: "spark-2", host: "192.168.200.13", fabricAddress: "192.168.200.13", facts: machines[1] },
  ]);
});

test("an update that leaves steps out ends well, and says nothing of what they would have found", async () => {
  const config = configurationOf("dev");
  const server = await runStack("dev", config, /^(server|benchmark)/);
  expect(Object.keys(server.outputs).filter((name) => server.outputs[name] === undefined)).toEqual([
    "endpoint",
    "apiKey",
    "benchmark",
  ]);
  expect(server.outputs["fabric"]).toEqual({ paths: preflight.fabric, allReduce });
  const { outputs } = await runStack("dev", config, /^(?!image-pull)/);
  expect(outputs["fabric"]).toEqual({ paths: [], allReduce: null });
});

test("nothing is left of the benchmark when it is not enabled", async () => {
  const { resources, outputs } = await runStack("dev", { ...configurationOf("dev"), benchmark: { enabled: false } });
  expect(resources.filter(({ name }) => name.startsWith("benchmark"))).toEqual([]);
  // Pulumi warns of an output that is undefined.
  expect(Object.keys(outputs)).not.toContain("benchmark");
});

test("one Spark needs no copy of the image and no fabric key", async () => {
  const config = configurationOf("dev");
  const { resources } = await runStack("dev", { ...config, nodes: (config["nodes"] as unknown[]).slice(0, 1) });
  const names = resources.map(({ name }) => name);
  expect(names.filter((name) => name.startsWith("image"))).toEqual(["image-pull", "image"]);
  const server = resources.find(({ name }) => name === "server-container");
  expect(server?.inputs["command"]).toContain("--tensor-parallel-size=1");
  expect(names).not.toContain("fabric-all-reduce");
});

test("the Hugging Face token is handed to the engine as a secret, and is nowhere else", async () => {
  const { resources } = await runStack("dev", { ...configurationOf("dev"), huggingFaceToken: "hf_canary" });
  expect(JSON.stringify(resources)).not.toContain("hf_canary");
  const engines = resources.filter(({ type }) => type === "docker:index/container:Container");
  expect(engines.map(({ name, inputs }) => [name, inputs["envs"]])).toEqual([
    ["ray-spark-1", "[secret]"],
    ["ray-spark-2", "[secret]"],
    ["server-container", "[secret]"],
  ]);
});

test("the login for the registry is a secret of the pull alone, and the outputs say what the image is", async () => {
  const config = configurationOf("dev");
  const login = { registry: { username: "$oauthtoken" }, registryPassword: "pw_canary" };
  const { resources, materials, outputs } = await runStack("dev", { ...config, ...login });
  expect(JSON.stringify(resources)).not.toContain("pw_canary");
  const holders = [...materials].filter(([, { inputs }]) => JSON.stringify(inputs).includes("pw_canary"));
  expect(holders.map(([name]) => name)).toEqual(["image-pull"]);
  const { stdin } = materials.get("image-pull")?.inputs as { stdin: { value: string } };
  expect(stdin.value).toContain(
    JSON.stringify(JSON.stringify({ REGISTRY_USERNAME: "$oauthtoken", REGISTRY_PASSWORD: "pw_canary" })),
  );
  expect(outputs["image"]).toEqual({
    id: "sha256:1",
    engine: { vllm: "0.32.0", ray: "2.60.0", python: "3.12.3" },
    pull: { bytes: 5_000, seconds: 4, gigabytesPerSecond: 0.00000125 },
    copies: [{ from: "spark-1", to: "spark-2", bytes: 12_000, seconds: 2, gigabytesPerSecond: 0.000006 }],
  });
});

test("an update without the image's steps bears what an earlier version of them printed", async () => {
  const config = configurationOf("dev");
  const earlier = { "pull_image.py": { changed: false }, "copy_image.py": { changed: false } };
  const { outputs } = await runStack("dev", config, undefined, earlier);
  expect([outputs["image"], outputs["model"]]).toEqual([undefined, "Qwen/Qwen3.5-122B-A10B-FP8"]);
});

test("a model from a hub is fetched with the token as a secret, by nothing that others see", async () => {
  const config = configurationOf("dev");
  const model = { ...(config["model"] as object), source: { kind: "hub", repository: "owner/a-model" } };
  const { resources, materials } = await runStack("dev", { ...config, model, huggingFaceToken: "hf_canary" });
  expect(JSON.stringify(resources)).not.toContain("hf_canary");
  const { create, stdin } = materials.get("model-fetch")?.inputs as {
    create: string;
    stdin: { value: string };
  };
  expect(create).toBe(
    "python3 -B - .dgx-spark-serving-dev spark-1 model-fetch 86400 create fetch_model.py dev " +
      "/home/aurora/models/Qwen3.5-122B-A10B-FP8 .dgx-spark-serving-dev owner/a-model main ''",
  );
  expect(stdin.value).toContain(
    JSON.stringify(JSON.stringify({ SERVING_IMAGE: localTag("dev", String(config["image"])), HF_TOKEN: "hf_canary" })),
  );
  const server = resources.find(({ name }) => name === "server-container");
  expect(server?.inputs["labels"]).toContainEqual({ label: "dgx-spark-serving.model", value: "model-fetch-id" });
});

test("the model goes down a chain of the nodes, and the outputs say how", async () => {
  const config = configurationOf("dev");
  const nodes = config["nodes"] as { name: string }[];
  const { fabric } = nodes[1] as unknown as { fabric: object };
  const third = {
    ...nodes[1],
    name: "spark-3",
    host: "192.168.200.14",
    fabric: { ...fabric, address: "192.168.200.14" },
  };
  const model = { ...(config["model"] as object), source: { kind: "path" } };
  const { resources, outputs } = await runStack("dev", { ...config, nodes: [...nodes, third], model });
  const of = (name: string) => resources.find((resource) => resource.name === name);
  expect(outputs["weights"]).toEqual({
    files: 2,
    bytes: 5_000,
    digest,
    commit: null,
    download: null,
    copies: [
      { from: "spark-1", to: "spark-2", bytes: 5_000, seconds: 0.5, gigabytesPerSecond: 1e-5 },
      { from: "spark-2", to: "spark-3", bytes: 0, seconds: 0, gigabytesPerSecond: null },
    ],
  });
  // Who may send to whom.
  expect(of("model-receiver-spark-2")?.inputs["create"]).toContain(" 192.168.200.12 ");
  expect(of("model-receiver-spark-3")?.inputs["create"]).toContain(" 192.168.200.13 ");
  expect(of("model-copy")?.dependsOn).toEqual(
    expect.arrayContaining(["model-receiver-spark-2", "model-receiver-spark-3", "model-list"]),
  );
  // Half a model is not read, nor taken for the whole of it.
  expect(of("model-list")?.dependsOn).toContain("model-spark-1");
  for (const name of ["model-spark-2", "model-spark-3"]) expect(of(name)?.dependsOn).toContain("model-copy");
  expect(of("ray-spark-3")?.dependsOn).toEqual(
    expect.arrayContaining(["model-list", "model-spark-2", "model-spark-3"]),
  );
});

test("every connection is secret, and goes by the jump host where there is one", async () => {
  const { resources } = await runStack("dev", configurationOf("dev"));
  const commands = resources.filter(({ type }) => type.startsWith("command:remote:"));
  expect(commands.length).toBeGreaterThan(0);
  expect(new Set(commands.map(({ inputs }) => inputs["connection"]))).toEqual(new Set(["[secret]"]));
});

test("a secret among `server.environment` is a secret on every container", async () => {
  const config = configurationOf("dev");
  const server = { ...(config["server"] as object), environment: { MY_TOKEN: "canary" } };
  const { resources } = await runStack("dev", { ...config, server });
  expect(JSON.stringify(resources)).not.toContain("canary");
});

test("a container is made anew with those that it depends on, and the node is looked at once more just before", async () => {
  const { resources } = await runStack("dev", configurationOf("dev"));
  const of = (name: string) => resources.find((resource) => resource.name === name);
  expect(of("ray-spark-1")?.inputs["labels"]).toEqual([
    { label: "dgx-spark-serving.deployment", value: "dev" },
    // Another list of nodes makes Ray anew on all of them.
    { label: "dgx-spark-serving.members", value: "192.168.200.12 192.168.200.13" },
  ]);
  // By the variable that holds their ids.
  expect(of("ray-spark-1")?.environmentOf).toEqual(["ray-token"]);
  expect(of("ray-spark-2")?.environmentOf).toEqual(["ray-spark-1", "ray-token"]);
  expect(of("server-container")?.environmentOf).toEqual(["ray-spark-1", "ray-spark-2", "ray-token", "server-api-key"]);
  expect(of("ray-spark-1")?.nameOf).toEqual([]);
  expect(of("ray-spark-2")?.nameOf).toEqual(["ray-spark-1"]);
  expect(of("server-container")?.nameOf).toEqual(["ray-spark-1", "ray-spark-2"]);
  for (const name of ["ray-spark-1", "ray-spark-2", "server-container"])
    expect(of(name)?.hooks).toEqual([`${name}-prepare`]);
});

test("nothing is done on any node before preflight has passed", async () => {
  const { resources } = await runStack("dev", configurationOf("dev"));
  const dependencies = new Map(resources.map(({ name, dependsOn }) => [name, dependsOn]));
  const all = (name: string): string[] => (dependencies.get(name) ?? []).flatMap((each) => [each, ...all(each)]);
  const onNodes = resources.filter(({ type }) => /^(command:remote|docker:index)/.test(type));
  expect(onNodes.length).toBe(16);
  expect(onNodes.filter(({ name }) => !all(name).includes("preflight-run"))).toEqual([]);
});

test("the model is not loaded before the ranks were seen to work together", async () => {
  const { resources } = await runStack("dev", configurationOf("dev"));
  const of = (name: string) => resources.find((resource) => resource.name === name);
  expect(of("server-container")?.dependsOn).toContain("fabric-all-reduce");
  expect(of("fabric-all-reduce")?.dependsOn).toContain("ray-gate");
  expect(of("fabric-all-reduce")?.inputs["triggers"]).toEqual(["ray-spark-1-id", "ray-spark-2-id"]);
});

test("what preflight judges by is in its input, and nothing that is secret or beside the point", async () => {
  const config = configurationOf("dev");
  const stdinOf = async (changes: Record<string, unknown>) => {
    const { resources } = await runStack("dev", { ...config, ...changes });
    return String(resources.find(({ name }) => name === "preflight-run")?.inputs["stdin"]);
  };
  const plain = await stdinOf({});
  expect(JSON.parse(plain)).toMatchObject({
    deployment: "dev",
    settings: { model: { path: "/home/aurora/models/Qwen3.5-122B-A10B-FP8" }, preflight: { allow: [], imageGB: 40 } },
  });
  const server = { ...(config["server"] as object), environment: { MY_TOKEN: "canary" } };
  expect(await stdinOf({ server, benchmark: { enabled: false }, huggingFaceToken: "hf_canary" })).toBe(plain);
  expect(await stdinOf({ preflight: { imageGB: 20 } })).not.toBe(plain);
});

import { expect, test } from "vitest";
import { configurationOf, figures, runStack } from "./stack";

test.each(["dev", "lab"] as const)("the resource graph of stack %s is the golden one", async (stack) => {
  const { resources } = await runStack(stack, configurationOf(stack));
  await expect(`${JSON.stringify(resources, null, 1)}\n`).toMatchFileSnapshot(`../golden/${stack}.json`);
});

test("outputs are the endpoint, the model, the key, the nodes and the figures", async () => {
  const { outputs } = await runStack("dev", configurationOf("dev"));
  expect(Object.keys(outputs).sort()).toEqual(["apiKey", "benchmark", "endpoint", "model", "nodes"]);
  expect(outputs["endpoint"]).toBe("http://10.1.230.180:8000/v1");
  expect(outputs["model"]).toBe("Qwen/Qwen3.5-122B-A10B-FP8");
  expect(outputs["apiKey"]).toBe("a-generated-key");
  expect(outputs["benchmark"]).toEqual(figures);
});

test("nothing is left of the benchmark when it is not enabled", async () => {
  const { resources, outputs } = await runStack("dev", { ...configurationOf("dev"), benchmark: { enabled: false } });
  expect(resources.filter(({ name }) => name.startsWith("benchmark"))).toEqual([]);
  expect(outputs["benchmark"]).toBeUndefined();
});

test("one Spark needs no copy of the image and no fabric key", async () => {
  const config = configurationOf("dev");
  const { resources } = await runStack("dev", { ...config, nodes: (config["nodes"] as unknown[]).slice(0, 1) });
  const names = resources.map(({ name }) => name);
  expect(names.filter((name) => name.startsWith("image"))).toEqual(["image-pull", "image"]);
  const server = resources.find(({ name }) => name === "server-container");
  expect(server?.inputs["command"]).toContain("--tensor-parallel-size=1");
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

test("a container is made anew with those that it depends on, and a leftover of its name is removed first", async () => {
  const { resources } = await runStack("dev", configurationOf("dev"));
  const of = (name: string) => resources.find((resource) => resource.name === name);
  const label = (value: string) => ({ label: "dgx-spark-serving.after", value });
  expect(of("ray-spark-1")?.inputs["labels"]).toEqual([{ label: "dgx-spark-serving.deployment", value: "dev" }]);
  expect(of("ray-spark-2")?.inputs["labels"]).toContainEqual(label("ray-spark-1-"));
  expect(of("server-container")?.inputs["labels"]).toContainEqual(label("ray-spark-1- ray-spark-2-"));
  for (const name of ["ray-spark-1", "ray-spark-2", "server-container"])
    expect(of(name)?.hooks).toEqual([`${name}-leftover`]);
});

test("no step that changes a node runs before every node passed its check", async () => {
  const { resources } = await runStack("dev", configurationOf("dev"));
  const dependencies = new Map(resources.map(({ name, dependsOn }) => [name, dependsOn]));
  const all = (name: string): string[] => (dependencies.get(name) ?? []).flatMap((each) => [each, ...all(each)]);
  const changing = resources.filter(
    ({ name, type }) => /^(image|ray|server|benchmark)-/.test(name) && !/random|CopyToRemote/.test(type),
  );
  expect(changing.length).toBeGreaterThan(10);
  const early = changing.filter(
    ({ name }) => !["spark-1-fabric", "spark-2-fabric"].every((check) => all(name).includes(check)),
  );
  expect(early.map(({ name }) => name)).toEqual(["benchmark-syntax"]);
});

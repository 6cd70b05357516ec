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

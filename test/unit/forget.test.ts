import { expect, test } from "vitest";
import { resourcesOn } from "../../components/forget/resourcesOn";

const urn = (name: string, type = "command:remote:Command") => `urn:pulumi:lab::dgx-spark-serving::${type}::${name}`;
const spark = (name: string) => ({
  urn: urn(name, "dgx-spark-serving:index:SparkNode"),
  type: "dgx-spark-serving:index:SparkNode",
});
const step = (name: string, node: string) => ({
  urn: urn(name),
  type: "command:remote:Command",
  inputs: { create: `python3 -B - .dgx-spark-serving-lab ${node} ${name} 60 create x.sh spark-2` },
});
const container = (name: string, node: string) => ({
  urn: urn(name, "docker:index/container:Container"),
  type: "docker:index/container:Container",
  provider: `${urn(`${node}-docker`, "pulumi:providers:docker")}::an-id`,
});

const resources = ["spark-1", "spark-2", "spark-20", "spark-2-docker"].flatMap((node) => [
  spark(node),
  { ...step(`${node}-workspace`, node), parent: spark(node).urn },
  {
    urn: urn(`${node}-docker`, "pulumi:providers:docker"),
    type: "pulumi:providers:docker",
    parent: spark(node).urn,
  },
  step(`model-${node}`, node),
  container(`ray-${node}`, node),
]);
const state = { deployment: { resources: [{ urn: urn("stack"), type: "pulumi:pulumi:Stack" }, ...resources] } };
const names = (node: string, of: unknown = state) =>
  resourcesOn(node, of).map((each) => each.slice(each.lastIndexOf("::") + 2));

test("what is on a node is found, dependents first, and nothing of another node", () => {
  expect(names("spark-2")).toEqual(["ray-spark-2", "model-spark-2", "spark-2-docker", "spark-2-workspace", "spark-2"]);
});

test("steps and containers are found when their Spark is no longer there", () => {
  const without = { deployment: { resources: resources.filter(({ urn: each }) => each !== spark("spark-2").urn) } };
  expect(names("spark-2", without)).toEqual(["ray-spark-2", "model-spark-2", "spark-2-docker", "spark-2-workspace"]);
});

test("of a node that is not known, and of an empty stack, there is nothing", () => {
  expect(names("spark-3")).toEqual([]);
  expect(names("spark-2", { deployment: {} })).toEqual([]);
});

import * as pulumi from "@pulumi/pulumi";
import { BenchmarkRun } from "./components/benchmarkRun";
import { routeTo } from "./components/connection";
import { ContainerImage } from "./components/containerImage";
import { Fabric } from "./components/fabric";
import { ModelWeights } from "./components/modelWeights";
import { Preflight } from "./components/preflight";
import { RayCluster } from "./components/rayCluster";
import type { NodeSettings } from "./components/schema";
import { loadSettings } from "./components/stackSettings";
import { SparkNode } from "./components/sparkNode";
import { VllmServer } from "./components/vllmServer";

const { settings, privateKey, huggingFaceToken, registryPassword } = loadSettings();
const deployment = pulumi.getStack();
const secretEnvironment = pulumi
  .output(huggingFaceToken)
  .apply((token) => [token === undefined ? "HF_HUB_OFFLINE=1" : `HF_TOKEN=${token}`]);

const preflight = new Preflight("preflight", { settings, deployment });
const spark = (node: NodeSettings) =>
  new SparkNode(node.name, {
    route: routeTo(node, settings.nodes),
    settings,
    privateKey,
    preflight,
    deployment,
  });
const [headSettings, ...workerSettings] = settings.nodes;
const head = spark(headSettings);
// By name: their order in the list means nothing, and must not make anything anew.
const workers = workerSettings.sort((a, b) => (a.name < b.name ? -1 : 1)).map(spark);
const sparks = [head, ...workers];

const image = new ContainerImage("image", { head, workers, settings, deployment, registryPassword });
const weights = new ModelWeights("model", { head, workers, deployment, settings, image, huggingFaceToken });

const cluster = new RayCluster("ray", { head, workers, deployment, settings, image, weights, secretEnvironment });
const fabric = new Fabric("fabric", { settings, deployment, preflight, cluster });
const server = new VllmServer("server", {
  head,
  deployment,
  cluster,
  fabric,
  image,
  weights,
  settings,
});
const run = settings.benchmark.enabled
  ? new BenchmarkRun("benchmark", { head, deployment, server, settings })
  : undefined;

export = {
  /** Base URL of the OpenAI API. Known when the server answered a completion. */
  endpoint: server.smoke.apply((seen) => seen && server.endpoint),
  /** Model id that requests name. */
  model: settings.model.name,
  /** Bearer token of the API. */
  apiKey: server.apiKey,
  /** Facts of each Spark. */
  nodes: sparks.map(({ name, settings: { host, fabric: link }, facts }) => ({
    name,
    host,
    fabricAddress: link.address,
    facts,
  })),
  /** What the image is, and how it came to the nodes. */
  image: image.output,
  /** What the model is, and how it came to the nodes; absent without `model.source`. */
  ...(settings.model.source && { weights: weights.output }),
  /** What the nodes measured between each other. */
  fabric: fabric.output,
  /** Figures of the benchmark; absent when it is not enabled. */
  ...(run && { benchmark: run.result }),
};

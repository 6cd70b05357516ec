import type * as docker from "@pulumi/docker";
import * as pulumi from "@pulumi/pulumi";
import * as random from "@pulumi/random";
import { containerName } from "./container";
import type { ContainerImage } from "./containerImage";
import { engineContainer } from "./engineContainer";
import type { Fabric } from "./fabric";
import { memoryDemand } from "./memory";
import type { ModelWeights } from "./modelWeights";
import { keptRunning } from "./keepRunning";
import { rankEnvironment, sessionDirectory } from "./rank";
import { rayAddress, urlHost } from "./ray";
import type { RayCluster } from "./rayCluster";
import { remoteStep, resultOf } from "./remoteStep";
import type { Settings } from "./schema";
import type { SparkNode } from "./sparkNode";
import { type Smoke, parseSmoke } from "./smoke";
import { vllmArguments } from "./vllm";

export interface VllmServerArgs {
  /** The head, where the API listens. */
  head: SparkNode;
  deployment: string;
  cluster: RayCluster;
  /** Nothing is loaded before the ranks are seen to work together. */
  fabric: Fabric;
  image: ContainerImage;
  weights: ModelWeights;
  settings: Pick<Settings, "accelerator" | "model" | "server">;
}

/**
 * The vLLM server: a container beside Ray's head, its ranks spread over the cluster, an API key, a gate that follows the
 * load and passes only after a real completion, and a smoke step that tries what the model is to be used for.
 */
export class VllmServer extends pulumi.ComponentResource {
  readonly container: docker.Container;
  /** Base URL of the OpenAI API. */
  readonly endpoint: string;
  /** Bearer token of the API. Secret. */
  readonly apiKey: pulumi.Output<string>;
  /** What the smoke step saw; undefined: an update left it out. */
  readonly smoke: pulumi.Output<Smoke | undefined>;
  /** The server answers after this. */
  readonly ready: pulumi.Resource;

  constructor(name: string, args: VllmServerArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:VllmServer", name, {}, opts);
    const { head, deployment } = args;
    const { model, server } = args.settings;
    this.endpoint = `http://${urlHost(head.settings.host)}:${server.port}/v1`;
    this.apiKey = new random.RandomPassword(`${name}-api-key`, { length: 40, special: false }, { parent: this }).result;
    this.container = this.startServer(name, args);

    // Room for thinking before the answer, and never more than a quarter of the context.
    const answerTokens = Math.min(512, Math.floor((server.maxModelLen ?? 2048) / 4));
    const tools = server.toolCallParser === "" ? "no-tools" : "tools";
    const serverContainer = containerName(deployment, "server");
    const loadSeconds = Math.ceil(server.loadTimeoutMinutes * 60);
    const gate = remoteStep(
      `${name}-gate`,
      {
        node: head,
        create: {
          script: "wait_for_server.py",
          args: [serverContainer, String(server.port), model.name, String(loadSeconds)],
        },
        triggers: [this.container.id],
        timeoutSeconds: loadSeconds + 60,
      },
      { parent: this, dependsOn: this.container },
    );
    const smoke = remoteStep(
      `${name}-smoke`,
      {
        node: head,
        create: {
          script: "smoke.py",
          args: [serverContainer, String(server.port), model.name, String(answerTokens), tools],
        },
        triggers: [this.container.id],
        timeoutSeconds: 600,
      },
      { parent: this, dependsOn: gate },
    );
    this.smoke = resultOf(smoke, parseSmoke);
    this.ready = smoke;
    this.registerOutputs({ endpoint: this.endpoint, cluster: rayAddress(head.settings), smoke: this.smoke });
  }

  private startServer(name: string, args: VllmServerArgs): docker.Container {
    const { head, cluster, deployment } = args;
    const { accelerator, model, server } = args.settings;
    return engineContainer(
      `${name}-container`,
      {
        node: head,
        deployment,
        role: "server",
        image: args.image.tag,
        accelerator,
        argv: keptRunning(["vllm", ...vllmArguments(args.settings, head.settings, cluster.containers.length)]),
        restart: "on-failure",
        environment: {
          ...rankEnvironment(head.settings, { accelerator, environment: server.environment }),
          RAY_ADDRESS: rayAddress(head.settings),
        },
        secretEnvironment: pulumi
          .all([this.apiKey, cluster.secretEnvironment])
          .apply(([key, secrets]) => [`VLLM_API_KEY=${key}`, ...secrets]),
        modelPath: model.path,
        ...(args.weights.id && { model: args.weights.id }),
        needs: { memory: memoryDemand(args.settings), ports: [server.port] },
        volumes: { [sessionDirectory]: cluster.session },
        // A server does not outlive the Ray processes that its ranks ran in.
        after: cluster.containers,
      },
      { parent: this, dependsOn: args.fabric.ready },
    );
  }
}

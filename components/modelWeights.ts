import * as pulumi from "@pulumi/pulumi";
import { z } from "zod";
import type { ContainerImage } from "./containerImage";
import { fabricKey } from "./fabricKey";
import { operatorStep, type RemoteCall, remoteStep, resultOf } from "./remoteStep";
import type { Settings } from "./schema";
import type { SparkNode } from "./sparkNode";
import { type Copy, hop, type Transfer, transfer } from "./transfer";

export interface ModelWeightsArgs {
  head: SparkNode;
  workers: readonly SparkNode[];
  deployment: string;
  settings: Pick<Settings, "model" | "ssh">;
  /** The hub's own client is in it. */
  image: ContainerImage;
  /** Undefined: what is fetched needs none. */
  huggingFaceToken: pulumi.Input<string | undefined>;
}

/** What the model is, and how it came to the nodes. */
export interface WeightsOutput {
  files: number;
  bytes: number;
  /** Tells it from every other model: of names, sizes and SHA-256 of all files. */
  digest: string;
  /** Commit on the hub; null: it was on the head already. */
  commit: string | null;
  /** What the head downloaded when the model was fetched; null: nothing is downloaded from there. */
  download: Transfer | null;
  /** What went over the fabric when it was copied, along the chain of nodes. */
  copies: Copy[];
}

const onHeadSchema = z.object({
  files: z.int(),
  bytes: z.int(),
  digest: z.string(),
  commit: z.string().optional(),
  fetchedBytes: z.int().optional(),
  seconds: z.number().optional(),
});
const copiesSchema = z.object({ nodes: z.record(z.string(), z.object({ bytes: z.int(), seconds: z.number() })) });

const minute = 60;

type Source = NonNullable<Settings["model"]["source"]>;

/** Of a step that goes first it would be known beforehand that the server goes too: it would be away for as long as the model comes. */
const keepsServer = { deleteBeforeReplace: false };

/**
 * The model on every node. Without a source it is left alone, and held to be whole and readable. With one, the head has it
 * first, every byte read and hashed, and sends it down a chain of the other nodes: each sends to the next what it found right,
 * while it still receives.
 */
export class ModelWeights extends pulumi.ComponentResource {
  /** The model is on every node after these. */
  readonly ready: pulumi.Resource[];
  /** Another one whenever the head got the model anew: what loaded the former one is made anew. Undefined without a source. */
  readonly id: pulumi.Output<string> | undefined;
  /** Undefined without a source, and where an update left the steps out. */
  readonly output: pulumi.Output<WeightsOutput | undefined>;

  constructor(name: string, args: ModelWeightsArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:ModelWeights", name, {}, opts);
    const { head, workers } = args;
    const { path, source } = args.settings.model;
    const check = (node: SparkNode, triggers?: pulumi.Input<unknown>[], dependsOn?: pulumi.Resource): pulumi.Resource =>
      remoteStep(
        `${name}-${node.name}`,
        {
          node,
          create: { script: "check_model.py", args: [path] },
          ...(triggers && { triggers }),
          timeoutSeconds: 120,
        },
        { parent: this, ...(dependsOn && { dependsOn }) },
      );
    this.output = pulumi.output(undefined);
    if (source === undefined) {
      this.ready = [head, ...workers].map((node) => check(node));
    } else {
      const limit = source.timeoutMinutes * minute;
      const isHub = source.kind === "hub";
      const onHead = isHub ? this.fetch(name, args, source, limit) : this.list(name, args, source, limit, check);
      const found = resultOf(onHead, (text) => onHeadSchema.parse(JSON.parse(text)));
      this.id = onHead.id;
      this.ready = [isHub ? check(head, [onHead.id], onHead) : onHead];
      let copied: pulumi.Output<z.output<typeof copiesSchema> | undefined> = pulumi.output({ nodes: {} });
      if (workers.length > 0) {
        const copy = this.copyAlong(name, [head, ...workers], path, onHead.id, this.ready, limit);
        copied = resultOf(copy, (text) => copiesSchema.parse(JSON.parse(text)));
        this.ready.push(...workers.map((worker) => check(worker, [onHead.id], copy)));
      }
      this.output = pulumi.all([found, copied]).apply(([known, { nodes } = { nodes: {} }]) => {
        if (known === undefined) return undefined;
        const { files, bytes, digest, commit = null, fetchedBytes, seconds } = known;
        return {
          files,
          bytes,
          digest,
          commit,
          download: fetchedBytes === undefined ? null : transfer(fetchedBytes, seconds ?? 0),
          copies: workers.flatMap((worker, index) => {
            const done = nodes[worker.name];
            const from = (workers[index - 1] ?? head).name;
            return done ? [{ from, to: worker.name, ...transfer(done.bytes, done.seconds) }] : [];
          }),
        };
      });
    }
    this.registerOutputs({ weights: this.output });
  }

  /** Reads what lies on the head, once it is seen to be whole. */
  private list(
    name: string,
    { head, settings }: ModelWeightsArgs,
    { folder }: Source,
    timeoutSeconds: number,
    check: (node: SparkNode, triggers?: pulumi.Input<unknown>[], dependsOn?: pulumi.Resource) => pulumi.Resource,
  ) {
    const { path } = settings.model;
    const sent = folder === undefined ? undefined : this.send(name, head, settings, folder);
    const triggers = [sent?.id ?? path];
    return remoteStep(
      `${name}-list`,
      {
        node: head,
        create: { script: "list_model.py", args: [path, head.directory] },
        triggers,
        timeoutSeconds,
      },
      { parent: this, dependsOn: check(head, triggers, sent), ...keepsServer },
    );
  }

  /** Downloads the model to the head. */
  private fetch(
    name: string,
    { head, deployment, image, settings, huggingFaceToken }: ModelWeightsArgs,
    { repository = "", revision, endpoint = "" }: Source,
    timeoutSeconds: number,
  ) {
    const { path } = settings.model;
    const from = [repository, revision, endpoint];
    return remoteStep(
      `${name}-fetch`,
      {
        node: head,
        create: { script: "fetch_model.py", args: [deployment, path, head.directory, ...from] },
        // With another image or token the model is still the same.
        environment: pulumi.output(huggingFaceToken).apply((token) => ({
          SERVING_IMAGE: image.tag,
          ...(token !== undefined && { HF_TOKEN: token }),
        })),
        triggers: [path, ...from],
        timeoutSeconds,
      },
      { parent: this, dependsOn: image.pulled, ...keepsServer },
    );
  }

  /** Sends a folder of this machine to the head. */
  private send(name: string, head: SparkNode, { model, ssh }: ModelWeightsArgs["settings"], folder: string) {
    return operatorStep(
      `${name}-send`,
      {
        argv: ["./scripts/send-model"],
        stdin: JSON.stringify({ head: head.settings, ssh, folder, path: model.path }),
        triggers: [folder, model.path],
        isLong: true,
      },
      { parent: this, dependsOn: head.ready, ...keepsServer },
    );
  }

  /** Lets each node send to the next, and has the first one begin. */
  private copyAlong(
    name: string,
    chain: readonly SparkNode[],
    path: string,
    model: pulumi.Output<string>,
    whole: readonly pulumi.Resource[],
    timeoutSeconds: number,
  ) {
    const [head, ...others] = chain as [SparkNode, ...SparkNode[]];
    const receivers = others.map((node, index) => {
      const sender = chain[index] as SparkNode;
      const publicKey = fabricKey(`${name}-key-${sender.name}`, sender, "model_ed25519", model, { parent: this });
      const following = others[index + 1];
      const config = JSON.stringify({ node: node.name, path, next: following ? hop(following) : null });
      const receiver = (action: string, ...more: pulumi.Input<string>[]): RemoteCall => ({
        script: "model_receiver.py",
        args: [action, node.directory, ...more],
      });
      return remoteStep(
        `${name}-receiver-${node.name}`,
        {
          node,
          create: receiver("add", sender.settings.fabric.address, publicKey, config),
          delete: receiver("remove"),
          triggers: [model],
          repairs: true,
          timeoutSeconds: 30,
        },
        { parent: this },
      );
    });
    return remoteStep(
      `${name}-copy`,
      {
        node: head,
        create: {
          script: "copy_model.py",
          args: [head.name, path, head.directory, JSON.stringify(others.map(hop))],
        },
        triggers: [model],
        timeoutSeconds,
      },
      { parent: this, dependsOn: [...receivers, ...whole] },
    );
  }
}

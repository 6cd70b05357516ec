import type * as command from "@pulumi/command";
import * as pulumi from "@pulumi/pulumi";
import { z } from "zod";
import { localTag } from "./container";
import { fabricKey } from "./fabricKey";
import { remoteStep, resultOf } from "./remoteStep";
import type { Settings } from "./schema";
import type { SparkNode } from "./sparkNode";
import { type Copy, hop, type Transfer, transfer } from "./transfer";

export interface ContainerImageArgs {
  /** Pulls the image. */
  head: SparkNode;
  /** Get it from the head, over the fabric. */
  workers: readonly SparkNode[];
  deployment: string;
  settings: Pick<Settings, "image" | "registry">;
  /** Undefined: without a login, or by the head's own. */
  registryPassword: pulumi.Input<string | undefined>;
}

/** What the image is, and how it came to the nodes. */
export interface ImageOutput {
  /** By which Docker knows it, on every node. */
  id: string;
  /** Versions of what is in it; null: its Python does not tell. */
  engine: { vllm: string | null; ray: string | null; python: string };
  /** What the head downloaded when the image was brought there; null: it was there. */
  pull: Transfer | null;
  /** What went over the fabric when it was last compared. */
  copies: Copy[];
}

// An update that leaves the steps out may find what an earlier version of them printed: then it is not known.
const sizesSchema = z.object({ bytes: z.int(), seconds: z.number() });
const pulledSchema = z.object({
  id: z.string(),
  engine: z.object({ vllm: z.string().nullable(), ray: z.string().nullable(), python: z.string() }),
  pull: sizesSchema.nullable(),
});

const hour = 3600;

/**
 * The serving image on every node: pulled by digest on the head, or found there by its id, streamed from there to the others
 * over the fabric, and verified to be the same. The head gets a key of its own for that, which may do nothing else on the workers.
 */
export class ContainerImage extends pulumi.ComponentResource {
  /** Name by which every node knows the image. */
  readonly tag: string;
  /** The image is on the head after this. */
  readonly pulled: pulumi.Resource;
  /** The image is on every node after these. */
  readonly ready: pulumi.Resource[];
  /** Undefined: an update left the steps out. */
  readonly output: pulumi.Output<ImageOutput | undefined>;

  constructor(name: string, args: ContainerImageArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:ContainerImage", name, {}, opts);
    const { head, workers, deployment, settings } = args;
    this.tag = localTag(deployment, settings.image);

    const { username } = settings.registry;
    const pulled = remoteStep(
      `${name}-pull`,
      {
        node: head,
        create: { script: "pull_image.py", args: [settings.image, this.tag, head.directory, deployment] },
        ...(username !== undefined && {
          environment: pulumi
            .output(args.registryPassword)
            .apply((password = "") => ({ REGISTRY_USERNAME: username, REGISTRY_PASSWORD: password })),
        }),
        repairs: true,
        timeoutSeconds: 2 * hour,
      },
      { parent: this },
    );
    this.pulled = pulled;
    this.ready = [pulled];
    let copies: pulumi.Output<Copy[]> = pulumi.output([]);
    if (workers.length > 0) {
      const publicKey = fabricKey(`${name}-fabric-key`, head, "fabric_ed25519", this.tag, { parent: this });
      const steps = workers.map((worker) => this.copyTo(name, worker, head, publicKey, pulled));
      this.ready.push(...steps);
      const seen = steps.map((step, index) =>
        resultOf(step, (text) => {
          const { data } = sizesSchema.safeParse(JSON.parse(text));
          const to = (workers[index] as SparkNode).name;
          return data && { from: head.name, to, ...transfer(data.bytes, data.seconds) };
        }),
      );
      copies = pulumi.all(seen).apply((each) => each.filter((copy) => copy !== undefined));
    }
    this.output = pulumi
      .all([resultOf(pulled, (text) => pulledSchema.safeParse(JSON.parse(text)).data), copies])
      .apply(([known, copied]) => {
        if (known === undefined) return undefined;
        const { id, engine, pull } = known;
        return { id, engine, pull: pull && transfer(pull.bytes, pull.seconds), copies: copied };
      });
    this.registerOutputs({ tag: this.tag, image: this.output });
  }

  private copyTo(
    name: string,
    worker: SparkNode,
    head: SparkNode,
    publicKey: pulumi.Output<string>,
    pulled: pulumi.Resource,
  ): command.remote.Command {
    const from = head.settings.fabric.address;
    const authorize = (action: string, ...more: pulumi.Input<string>[]) => ({
      script: "authorize-fabric-key.sh",
      args: [action, worker.directory, "receive-image.sh", ...more],
    });
    const authorized = remoteStep(
      `${name}-authorize-${worker.name}`,
      {
        node: worker,
        create: authorize("add", from, publicKey),
        delete: authorize("remove"),
        triggers: [from, this.tag],
        repairs: true,
        timeoutSeconds: 30,
      },
      { parent: this },
    );
    return remoteStep(
      `${name}-copy-${worker.name}`,
      {
        node: head,
        create: { script: "copy_image.py", args: [this.tag, head.directory, JSON.stringify(hop(worker))] },
        repairs: true,
        timeoutSeconds: 2 * hour,
      },
      { parent: this, dependsOn: [pulled, authorized] },
    );
  }
}

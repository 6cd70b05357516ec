import * as pulumi from "@pulumi/pulumi";
import { localTag } from "./container";
import { fabricKey } from "./fabricKey";
import { remoteStep } from "./remoteStep";
import type { Settings } from "./schema";
import type { SparkNode } from "./sparkNode";

export interface ContainerImageArgs {
  /** Pulls the image. */
  head: SparkNode;
  /** Get it from the head, over the fabric. */
  workers: readonly SparkNode[];
  deployment: string;
  settings: Pick<Settings, "image">;
}

const hour = 3600;

/**
 * The serving image on every node: pulled by digest on the head, streamed from there to the others over the fabric,
 * and verified to be the same. The head gets a key of its own for that, which may do nothing else on the workers.
 */
export class ContainerImage extends pulumi.ComponentResource {
  /** Name by which every node knows the image. */
  readonly tag: string;
  /** The image is on the head after this. */
  readonly pulled: pulumi.Resource;
  /** The image is on every node after these. */
  readonly ready: pulumi.Resource[];

  constructor(name: string, args: ContainerImageArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:ContainerImage", name, {}, opts);
    const { head, workers, settings } = args;
    this.tag = localTag(args.deployment, settings.image);

    const pulled = remoteStep(
      `${name}-pull`,
      {
        node: head,
        create: { script: "pull-image.sh", args: [settings.image, this.tag] },
        repairs: true,
        timeoutSeconds: 2 * hour,
      },
      { parent: this },
    );
    this.pulled = pulled;
    this.ready = [pulled];
    if (workers.length > 0) {
      const publicKey = fabricKey(`${name}-fabric-key`, head, "fabric_ed25519", this.tag, { parent: this });
      this.ready.push(...workers.map((worker) => this.copyTo(name, worker, head, publicKey, pulled)));
    }
    this.registerOutputs({ tag: this.tag });
  }

  private copyTo(
    name: string,
    worker: SparkNode,
    head: SparkNode,
    publicKey: pulumi.Output<string>,
    pulled: pulumi.Resource,
  ): pulumi.Resource {
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
    const { user, port, hostKey, fabric } = worker.settings;
    return remoteStep(
      `${name}-copy-${worker.name}`,
      {
        node: head,
        create: {
          script: "copy-image.sh",
          args: [
            this.tag,
            worker.name,
            `${head.directory}/fabric_ed25519`,
            user,
            fabric.address,
            String(port),
            hostKey,
          ],
        },
        repairs: true,
        timeoutSeconds: 2 * hour,
      },
      { parent: this, dependsOn: [pulled, authorized] },
    );
  }
}

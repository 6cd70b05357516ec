import { createHash } from "node:crypto";
import { linkSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** A gzipped tar of the image's only layer. */
export interface Layer {
  file: string;
  /** sha256 of the file, in hex. */
  digest: string;
  /** sha256 of the tar inside, in hex. */
  diffId: string;
  /** Bytes of the file. */
  size: number;
}

/** What a container of the image runs with. */
export interface ImageConfig {
  Env: string[];
  Cmd: string[];
  Labels: Record<string, string>;
}

const MEDIA = "application/vnd.docker";

/**
 * Writes an image of one layer as docker-registry 2.x stores it, so that the registry serves it without anything being
 * pushed or copied; returns the digest that names it ("sha256:…").
 */
export function storeImage(storage: string, repository: string, layer: Layer, config: ImageConfig): string {
  const root = join(storage, "docker/registry/v2");
  const write = (path: string, content: string): void => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  };
  const blobPath = (hex: string): string => `blobs/sha256/${hex.slice(0, 2)}/${hex}/data`;
  const blob = (content: string): string => {
    const hex = createHash("sha256").update(content).digest("hex");
    write(blobPath(hex), content);
    return hex;
  };
  const link = (path: string, hex: string): void => {
    write(`repositories/${repository}/${path}/link`, `sha256:${hex}`);
  };

  mkdirSync(dirname(join(root, blobPath(layer.digest))), { recursive: true });
  linkSync(layer.file, join(root, blobPath(layer.digest)));
  const configText = JSON.stringify({
    architecture: process.arch === "arm64" ? "arm64" : "amd64",
    os: "linux",
    config,
    rootfs: { type: "layers", diff_ids: [`sha256:${layer.diffId}`] },
  });
  const configHex = blob(configText);
  const manifestHex = blob(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: `${MEDIA}.distribution.manifest.v2+json`,
      config: {
        mediaType: `${MEDIA}.container.image.v1+json`,
        size: Buffer.byteLength(configText),
        digest: `sha256:${configHex}`,
      },
      layers: [
        { mediaType: `${MEDIA}.image.rootfs.diff.tar.gzip`, size: layer.size, digest: `sha256:${layer.digest}` },
      ],
    }),
  );
  link(`_layers/sha256/${layer.digest}`, layer.digest);
  link(`_layers/sha256/${configHex}`, configHex);
  link(`_manifests/revisions/sha256/${manifestHex}`, manifestHex);
  return `sha256:${manifestHex}`;
}

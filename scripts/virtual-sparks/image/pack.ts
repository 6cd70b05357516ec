import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";

import { LabError } from "../run";
import type { Layer } from "./registry-storage";

/** Packs a directory tree as an image's layer: a gzipped tar, with both digests taken on the way. */
export async function pack(root: string, file: string): Promise<Layer> {
  const tar = spawn("tar", ["--create", "--numeric-owner", "--sort=name", "--directory", root, "."], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  // The fastest level: every `up` unpacks it, and the link to the registry costs nothing.
  const gzip = spawn("pigz", ["-1"], { stdio: ["pipe", "pipe", "inherit"] });
  const exits = Promise.all([once(tar, "close"), once(gzip, "close")]);
  const [plain, packed] = [digest(), digest()];
  await Promise.all([
    pipeline(tar.stdout, plain.through, gzip.stdin),
    pipeline(gzip.stdout, packed.through, createWriteStream(file)),
  ]);
  for (const [code] of await exits) if (code !== 0) throw new LabError(`packing ${root}: tar or pigz failed`);
  return { file, digest: packed.hex(), diffId: plain.hex(), size: packed.bytes() };
}

/** Counts and hashes what flows through. */
function digest(): { through: Transform; hex: () => string; bytes: () => number } {
  const hash = createHash("sha256");
  let bytes = 0;
  const through = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  return { through, hex: () => hash.digest("hex"), bytes: () => bytes };
}

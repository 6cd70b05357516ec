import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { z } from "zod";

import { CACHE } from "./paths";
import { LabError, runContained } from "./run";

const RECIPE = join(__dirname, "image");

/** What is made once for a machine and cached: image and model. */
export interface Artifacts {
  /** Storage of a docker-registry that holds the image. */
  registryStorage: string;
  /** "sha256:…" of the image's manifest. */
  digest: string;
  /** Bytes of the image's layer, compressed. */
  layerBytes: number;
  /** Directory of the model. */
  model: string;
}

const imageSchema = z.object({ digest: z.string(), layerBytes: z.number() });

/** The image and the model, built when this recipe has not been built on this machine yet. */
export async function artifacts(): Promise<Artifacts> {
  const home = directory();
  if (!isBuilt()) {
    mkdirSync(CACHE, { recursive: true });
    // The same Node with the same loader as this.
    const code = await runContained([process.execPath, ...process.execArgv, join(RECIPE, "build.ts"), home]);
    rmSync(`${home}.building`, { recursive: true, force: true }); // a failed build leaves it
    if (code !== 0) throw new LabError("The lab's image could not be built: see above. Repeat when it is mended.");
  }
  const image = imageSchema.parse(JSON.parse(readFileSync(join(home, "image.json"), "utf8")));
  return { ...image, registryStorage: join(home, "registry"), model: join(home, "model") };
}

/** Whether the cache has what this recipe makes. */
export function isBuilt(): boolean {
  return existsSync(directory());
}

/** The cache's directory of this recipe: any change in it makes another image. */
function directory(): string {
  const files = readdirSync(RECIPE, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith(".pyc"))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
  const hash = createHash("sha256").update(process.arch);
  for (const file of files) hash.update(`\0${relative(RECIPE, file)}\0`).update(readFileSync(file));
  return join(CACHE, hash.digest("hex").slice(0, 16));
}

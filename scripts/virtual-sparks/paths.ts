import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** The repository this lab runs from. */
export const REPOSITORY = resolve(__dirname, "../..");

/** The lab's state; of the whole machine, as its namespaces and addresses are. */
export const STATE = "/var/lib/dgx-spark-lab";

/** What is made once and used by every lab of this person: the image and the model. */
export const CACHE = resolve(
  process.env.DGX_SPARK_CACHE ?? join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "dgx-spark-serving"),
  "lab",
);

/** A node's directory in the lab's state; `root` below it is the node's disk. */
export function nodeDirectory(name: string): string {
  return join(STATE, "nodes", name);
}

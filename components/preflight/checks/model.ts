import type { Settings } from "../../schema";
import type { NodeProbe } from "../probe";
import { problem, type Problem } from "../problem";

/** Whether the model is whole on every node, and the same; or whether it can be brought there, and stayed as it was. */
export function checkModel(probes: readonly NodeProbe[], { nodes, model: { path } }: Settings): Problem[] {
  const problems: Problem[] = [];
  let first: { name: string; files: number; bytes: number; digest: string } | undefined;
  for (const { node, model } of probes) {
    if (model === null) continue;
    if ("problem" in model) {
      const expected = `a whole model in ${path}, readable`;
      problems.push(problem("model-unusable", node.name, { found: model.problem, expected }));
    } else if ("rsync" in model) {
      if (!model.rsync && nodes.length > 1) {
        problems.push(
          problem("rsync-missing", node.name, { found: "no program rsync", expected: "rsync in the PATH" }),
        );
      }
      if (model.changed.length > 0) {
        const [one = "", ...others] = model.changed;
        const found = `${one}${others.length > 0 ? ` and ${others.length} more` : ""} in ${path} changed or is missing`;
        problems.push(
          problem("model-changed", node.name, { found, expected: "every file as it was when it was brought" }),
        );
      }
    } else if (first === undefined) {
      first = { name: node.name, ...model };
    } else if (model.digest !== first.digest) {
      const size = ({ files, bytes }: { files: number; bytes: number }) => `${files} files, ${bytes} bytes`;
      const found = `${size(model)} in ${path}, with other names or sizes`;
      problems.push(problem("model-different", node.name, { found, expected: `${size(first)}, as on ${first.name}` }));
    }
  }
  return problems;
}

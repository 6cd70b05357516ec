import type { Settings } from "../../schema";
import type { NodeProbe } from "../probe";
import { problem, type Problem } from "../problem";

/** Whether the model is whole on every node, and the same. */
export function checkModel(probes: readonly NodeProbe[], { model: { path } }: Settings): Problem[] {
  const problems: Problem[] = [];
  let first: { name: string; files: number; bytes: number; digest: string } | undefined;
  for (const { node, model } of probes) {
    if (model === null) continue;
    if ("problem" in model) {
      const expected = `a whole model in ${path}, readable`;
      problems.push(problem("model-unusable", node.name, { found: model.problem, expected }));
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

import type { Settings } from "../schema";
import { checkDocker } from "./checks/docker";
import { checkFabric } from "./checks/fabric";
import { checkMachines } from "./checks/machine";
import { checkMemory } from "./checks/memory";
import { checkModel } from "./checks/model";
import type { NodeProbe } from "./probe";
import type { Problem } from "./problem";

/**
 * Judges what is known of all nodes.
 *
 * @param probes in the order of the settings, the head first
 * @param deployment name of this deployment: what is its own is in nobody's way
 * @returns every problem, errors first, then in the order of the nodes; those that `preflight.allow` names are warnings
 */
export function judge(probes: readonly NodeProbe[], settings: Settings, deployment: string): Problem[] {
  const problems = allow(
    [
      ...probes.flatMap(({ failure }) => (failure === null ? [] : [failure])),
      ...checkMachines(probes, settings),
      ...checkMemory(probes, settings, deployment),
      ...checkDocker(probes, settings, deployment),
      ...checkModel(probes, settings),
      ...checkFabric(probes, settings),
    ],
    settings.preflight.allow,
  );
  const order = ({ severity, node }: Problem) =>
    (severity === "error" ? 0 : probes.length) + probes.findIndex((each) => each.node.name === node);
  // Stable: a node's problems stay in the order of the checks.
  return problems.sort((a, b) => order(a) - order(b));
}

/** The problems, with the errors that a person lets pass as warnings. */
export function allow(problems: readonly Problem[], codes: readonly string[]): Problem[] {
  return problems.map((each): Problem =>
    each.severity === "error" && codes.includes(each.code) ? { ...each, severity: "warning", allowed: true } : each,
  );
}

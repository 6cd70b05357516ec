import type { Settings } from "../schema";
import type { NodeFacts } from "./facts";
import { gather } from "./gather";
import { judge } from "./judge";
import type { Problem } from "./problem";
import { type FabricFigures, fabricFigures, isReady } from "./report";

/** What preflight found. */
export interface PreflightResult {
  /** Whether a deployment may begin: there is no error. */
  ready: boolean;
  problems: Problem[];
  /** By name of the node; one that could not be asked is left out. */
  facts: Record<string, NodeFacts>;
  /** Between every two nodes, both ways. */
  fabric: FabricFigures[];
}

/** Asks all nodes, and judges. Changes nothing anywhere. */
export async function runPreflight(settings: Settings, deployment: string): Promise<PreflightResult> {
  const probes = await gather(settings, deployment);
  const problems = judge(probes, settings, deployment);
  return {
    ready: isReady(problems),
    problems,
    facts: Object.fromEntries(probes.flatMap(({ node, facts }) => (facts === null ? [] : [[node.name, facts]]))),
    fabric: fabricFigures(probes),
  };
}

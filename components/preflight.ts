import * as pulumi from "@pulumi/pulumi";
import { type MachineFacts, machineFacts } from "./preflight/facts";
import type { PreflightResult } from "./preflight/run";
import type { Problem } from "./preflight/problem";
import { type FabricFigures, renderProblems } from "./preflight/report";
import { operatorStep, resultOf } from "./remoteStep";
import type { Settings } from "./schema";

export interface PreflightArgs {
  settings: Settings;
  deployment: string;
}

/**
 * All nodes are asked at once and judged together, before anything is touched on any. An error ends the update with every
 * problem of every node. Runs again when a setting changes that it judges by.
 */
export class Preflight extends pulumi.ComponentResource {
  /** What changes a node comes after this. */
  readonly passed: pulumi.Resource;
  /** What the nodes measured between each other. */
  readonly paths: pulumi.Output<FabricFigures[]>;
  private readonly result: pulumi.Output<PreflightResult | undefined>;

  constructor(name: string, args: PreflightArgs, opts?: pulumi.ComponentResourceOptions) {
    super("dgx-spark-serving:index:Preflight", name, {}, opts);
    // Without what is not judged, and the environment, which may hold secrets.
    const { settings } = args;
    const judged = { ...settings, ...unjudged, server: { ...settings.server, environment: {} } };
    const { step, result } = preflightStep<PreflightResult>(
      `${name}-run`,
      { step: "nodes", deployment: args.deployment, settings: judged },
      { parent: this },
    );
    this.passed = step;
    this.result = result;
    this.paths = this.result.apply((found) => found?.fabric ?? []);
    this.registerOutputs({ paths: this.paths });
  }

  /** The machine of one node, by its name in the settings. */
  factsOf(node: string): pulumi.Output<MachineFacts | undefined> {
    return this.result.apply((found) => found?.facts[node] && machineFacts(found.facts[node]));
  }
}

/** Settings that no step of preflight depends on. */
export const unjudged = { benchmark: undefined, keepImages: undefined, registry: undefined };

/** A step of `./scripts/preflight`. An error that it finds fails it; what was let pass is shown as a warning beside it. */
export function preflightStep<Result extends { problems: Problem[] }>(
  name: string,
  args: { step: "nodes" | "all-reduce"; deployment: string; settings: object; triggers?: pulumi.Input<unknown>[] },
  opts: pulumi.CustomResourceOptions,
): { step: pulumi.Resource; result: pulumi.Output<Result | undefined> } {
  const { deployment, settings, triggers } = args;
  const step = operatorStep(
    name,
    {
      argv: ["./scripts/preflight", "--step", args.step],
      stdin: JSON.stringify({ deployment, settings }),
      ...(triggers && { triggers }),
    },
    opts,
  );
  const result = resultOf(step, (text) => JSON.parse(text) as Result);
  result.apply((found) => {
    const problems = found?.problems ?? [];
    if (problems.length > 0) void pulumi.log.warn(`\n${renderProblems(problems)}\n`, step);
  });
  return { step, result };
}

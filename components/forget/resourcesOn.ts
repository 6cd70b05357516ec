import { z } from "zod";

const resourceSchema = z.looseObject({
  urn: z.string(),
  type: z.string(),
  parent: z.string().optional(),
  provider: z.string().optional(),
  inputs: z.looseObject({ create: z.string().optional().catch(undefined) }).optional(),
});
const stateSchema = z.looseObject({
  deployment: z.looseObject({ resources: z.array(resourceSchema).default([]) }),
});

/** URNs of what a state has on one node, in the order in which they can be taken out of it. */
export function resourcesOn(node: string, state: unknown): string[] {
  const { resources } = stateSchema.parse(state).deployment;
  const spark = resources.find(({ type, urn }) => type.endsWith(":SparkNode") && urn.endsWith(`::${node}`))?.urn;
  const isOn = ({ urn, parent, provider = "", inputs }: z.output<typeof resourceSchema>) =>
    (spark !== undefined && (urn === spark || parent === spark)) ||
    [urn, provider].some((each) => `${each}::`.includes(`pulumi:providers:docker::${node}-docker::`)) ||
    // The second argument of step.py.
    /^python3 -B - \S+ (\S+) /.exec(inputs?.create ?? "")?.[1] === node;
  // A state has each resource after those that it depends on.
  return resources
    .filter(isOn)
    .map(({ urn }) => urn)
    .reverse();
}

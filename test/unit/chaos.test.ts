import fc from "fast-check";
import { expect, test } from "vitest";
import { schema } from "../../components/schema";
import { isUnchanged, lastStep } from "../../scripts/virtual-sparks/chaos/operation";
import { FAULTS, type Kill, plan } from "../../scripts/virtual-sparks/chaos/plan";
import { killTable } from "../../scripts/virtual-sparks/chaos/run";
import { configurationOf } from "./stack";

const seeds = fc.integer({ min: 0, max: 2 ** 31 - 1 });
const killsOf = (seed: number, count: number): Kill[] => plan(seed, count).flatMap(({ kills }) => kills);

/** Checks a statement for some seeds. */
function forSeeds(statement: (seed: number) => void): void {
  fc.assert(fc.property(seeds, statement), { numRuns: 50 });
}

test("the same seed makes the same plan, another one another", () => {
  forSeeds((seed) => {
    expect(plan(seed, 100)).toEqual(plan(seed, 100));
    expect(plan(seed, 100)).not.toEqual(plan(seed + 1, 100));
  });
});

test("100 kills have every fault at least 7 times, and one destroy in six", () => {
  forSeeds((seed) => {
    const kills = killsOf(seed, 100);
    for (const fault of FAULTS) expect(kills.filter((kill) => kill.fault === fault).length).toBeGreaterThanOrEqual(7);
    const destroys = kills.filter(({ operation }) => operation === "destroy").length;
    expect([16, 17]).toContain(destroys);
  });
});

test("moments are fractions below 1, most of them early", () => {
  forSeeds((seed) => {
    const moments = killsOf(seed, 100).map(({ moment }) => moment);
    expect(moments.every((moment) => moment >= 0 && moment < 1)).toBe(true);
    expect(moments.filter((moment) => moment < 0.5).length).toBeGreaterThan(50);
  });
});

test("rounds have 3 to 5 kills, numbered through, and as many as were asked for", () => {
  fc.assert(
    fc.property(seeds, fc.integer({ min: 3, max: 120 }), (seed, count) => {
      const rounds = plan(seed, count);
      for (const { kills } of rounds) expect([3, 4, 5]).toContain(kills.length);
      const numbers = rounds.flatMap(({ kills }) => kills.map(({ number }) => number));
      expect(numbers).toEqual(Array.from({ length: count }, (_, index) => index + 1));
    }),
  );
});

test.each([0, 1, 2])("%d kills are as many", (count) => {
  expect(killsOf(5, count)).toHaveLength(count);
});

test("a quarter of the rounds with a disturbed destroy end destroyed, the first of them too, and no others", () => {
  forSeeds((seed) => {
    const rounds = plan(seed, 100);
    const withDestroy = rounds.filter(({ kills }) => kills.some(({ operation }) => operation === "destroy"));
    expect(rounds.filter(({ endsDestroyed }) => endsDestroyed)).toEqual(
      withDestroy.filter((_, index) => index % 4 === 0),
    );
  });
});

test("a fault strikes where it can: no node for the operator's, the head for what only it has", () => {
  forSeeds((seed) => {
    for (const { fault, node } of killsOf(seed, 100)) {
      if (/^(engine|plugins|program|interrupt)/.test(fault)) expect(node).toBeUndefined();
      else if (fault === "link-cut" || fault === "server-kill") expect(node).toBe(1);
      else expect([1, 2]).toContain(node);
    }
  });
});

test("a change, and nothing else, sets something that the program takes", () => {
  const configuration = configurationOf("lab");
  const changed = (change: NonNullable<Kill["change"]>): unknown => {
    const server = structuredClone(configuration["server"]) as { extraArgs: string[] };
    if (change.key === "server.extraArgs[2]") server.extraArgs[2] = change.value;
    else if (change.key === "server.environment.CHAOS") Object.assign(server, { environment: { CHAOS: change.value } });
    else Object.assign(server, { maxNumSeqs: change.value });
    return { ...configuration, server };
  };
  const before = schema.parse(configuration);
  for (const { operation, change } of killsOf(5, 100)) {
    expect(change !== undefined).toBe(operation === "change");
    if (change !== undefined) expect(schema.parse(changed(change))).not.toEqual(before);
  }
});

test.each([
  ["", ""],
  ["@ updating....\n    pulumi:pulumi:Stack dgx-spark-serving-lab running \n", ""],
  [
    " +  docker:index:Container server-container created (2s) \n +  command:remote:Command server-gate creating (12s) 12 s: starting the engine\n",
    "server-gate creating",
  ],
  [
    " -- docker:index:Container ray-spark-1 deleting original (0s) \n    pulumi:pulumi:Stack dgx-spark-serving-lab running error: no\n",
    "ray-spark-1 deleting",
  ],
  [" +  command:remote:Command server-gate **creating failed (3s)** error: no\n", "server-gate creating"],
  [" ~  dgx-spark-serving:index:SparkNode spark-1 refreshing\n~~ half a li", "spark-1 refreshing"],
])("the last step of %j is %j", (output, step) => {
  expect(lastStep(output)).toBe(step);
});

test.each([
  ["Resources:\n    37 unchanged\n\nDuration: 9s\n", true],
  ["Resources:\n    + 1 created\n    36 unchanged\n\nDuration: 9s\n", false],
  ["Resources:\n    37 unchanged\n    1 deleted\n\nDuration: 9s\n", false],
  ["error: update failed\n", false],
])("%j says that nothing was changed: %s", (output, expected) => {
  expect(isUnchanged(output)).toBe(expected);
});

test("the table has every fault, and sums", () => {
  const rows = killTable([
    { operation: "up", fault: "link-cut" },
    { operation: "destroy", fault: "link-cut" },
  ]).split("\n");
  expect(rows).toHaveLength(FAULTS.length + 2);
  expect(rows.find((row) => row.startsWith("link-cut"))).toMatch(/^link-cut +1 +0 +1 +2$/);
  expect(rows.at(-1)).toMatch(/^all +1 +0 +1 +2$/);
});

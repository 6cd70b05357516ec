import fc from "fast-check";

/** What is disturbed. `up` brings what is pending, `change` sets one thing first. */
export type Operation = "up" | "change" | "destroy";

/** Where each fault strikes: on the operator's machine, on the head, or on a node drawn by lot. */
const PLACES = {
  "engine-kill": "operator",
  "plugins-kill": "operator",
  "program-kill": "operator",
  interrupt: "operator",
  "interrupt-twice": "operator",
  "link-cut": "head",
  "power-cut": "any",
  "docker-restart": "any",
  "docker-kill": "any",
  "rank-kill": "any",
  "ray-kill": "any",
  "server-kill": "head",
  "disk-full": "any",
} as const satisfies Record<string, "operator" | "head" | "any">;

/** Faults by name; chaos.ts says what each does. */
export type Fault = keyof typeof PLACES;
export const FAULTS = Object.keys(PLACES) as Fault[];

/** A setting as `pulumi config set --path KEY VALUE` takes it. */
export interface Change {
  key: string;
  value: string;
}

/** One disturbed operation. */
export interface Kill {
  /** From 1, through all rounds. */
  number: number;
  operation: Operation;
  /** Given for the operation `change` alone. */
  change?: Change;
  fault: Fault;
  /** Number of the node that it strikes, 1 being the head; undefined: the operator's machine. */
  node?: number;
  /** When it strikes, as a fraction of the operation's usual length, 0 to below 1. Early ones are more frequent. */
  moment: number;
  /** How long a cut link stays cut, seconds. */
  cutSeconds: number;
}

/** Some kills, then a check of what came of them. */
export interface Round {
  /** From 1. */
  number: number;
  kills: Kill[];
  /** Whether everything is destroyed undisturbed, and looked for, before it has to come up again. */
  endsDestroyed: boolean;
}

/** Nodes that a fault may strike. */
export const NODES = 2;

/** A deck of operations: one destroy in six. */
const OPERATIONS: readonly Operation[] = ["up", "up", "change", "change", "change", "destroy"];
const CHANGES = ["flag", "environment", "sequences"] as const;
type ChangeKind = (typeof CHANGES)[number];
/** Kills a round. */
const SIZE = { min: 3, max: 5 };
/** Of the rounds with a disturbed destroy, one in so many ends destroyed. */
const DESTROYED_ONE_IN = 4;
/** Steps that a moment is drawn from. */
const RESOLUTION = 2 ** 31;

/** The whole run: always the same for the same seed, a whole number, and number of kills. */
export function plan(seed: number, kills: number): Round[] {
  const [drawn] = fc.sample(fc.noBias(lots(kills)), { seed, numRuns: 1 });
  if (drawn === undefined) throw new Error("nothing was drawn");
  let withDestroy = 0;
  return cut(drawn).map((lotsOfRound, index) => {
    const isDestroyed = lotsOfRound.some(({ kill }) => kill.operation === "destroy");
    if (isDestroyed) withDestroy += 1;
    return {
      number: index + 1,
      kills: lotsOfRound.map(({ kill }) => kill),
      endsDestroyed: isDestroyed && withDestroy % DESTROYED_ONE_IN === 1,
    };
  });
}

interface Lot {
  kill: Kill;
  /** Number of kills of a round, should one begin here. */
  size: number;
}

/** One lot a kill. Operations, faults and changes come from decks, so that none is missing for long. */
function lots(count: number): fc.Arbitrary<Lot[]> {
  const each = (min: number, max: number): fc.Arbitrary<number[]> =>
    fc.array(fc.integer({ min, max }), { minLength: count, maxLength: count });
  return fc
    .record({
      operations: dealt(OPERATIONS, count),
      faults: dealt(FAULTS, count),
      changes: dealt(CHANGES, count),
      nodes: each(1, NODES),
      // Not fc.double: it draws among all doubles, of which nearly all are next to 0.
      moments: each(0, RESOLUTION - 1),
      cuts: each(2, 15),
      sizes: each(SIZE.min, SIZE.max),
    })
    .map((drawn) =>
      drawn.faults.map((fault, index) => ({
        kill: killOf(index + 1, {
          fault,
          operation: at(drawn.operations, index),
          change: at(drawn.changes, index),
          node: at(drawn.nodes, index),
          fraction: at(drawn.moments, index) / RESOLUTION,
          cutSeconds: at(drawn.cuts, index),
        }),
        size: at(drawn.sizes, index),
      })),
    );
}

/** Cards from a deck that is shuffled anew whenever it is used up. */
function dealt<T>(deck: readonly T[], count: number): fc.Arbitrary<T[]> {
  const shuffled = fc.shuffledSubarray([...deck], { minLength: deck.length });
  const decks = Math.ceil(count / deck.length);
  return fc.array(shuffled, { minLength: decks, maxLength: decks }).map((list) => list.flat().slice(0, count));
}

function killOf(
  number: number,
  lot: Pick<Kill, "operation" | "fault" | "cutSeconds"> & { change: ChangeKind; node: number; fraction: number },
): Kill {
  const { operation, fault, cutSeconds } = lot;
  const place = PLACES[fault];
  return {
    number,
    operation,
    ...(operation === "change" && { change: changeOf(lot.change, number) }),
    fault,
    ...(place !== "operator" && { node: place === "head" ? 1 : lot.node }),
    moment: lot.fraction ** 2, // squared: early ones are more frequent
    cutSeconds,
  };
}

/** A setting with a value that it did not have shortly before. */
function changeOf(change: ChangeKind, number: number): Change {
  switch (change) {
    case "flag": // of the server alone; the lab's settings have two arguments
      return { key: "server.extraArgs[2]", value: `--max-logprobs=${20 + number}` };
    case "environment": // of every rank, so Ray is made anew
      return { key: "server.environment.CHAOS", value: String(number) };
    case "sequences": // not 8, which the lab has
      return { key: "server.maxNumSeqs", value: String(9 + (number % 8)) };
    default:
      return change satisfies never;
  }
}

/** Lots in rounds; the last round gets at least the smallest size, unless there are fewer in all. */
function cut(all: readonly Lot[]): Lot[][] {
  const rounds: Lot[][] = [];
  for (let from = 0; from < all.length;) {
    const left = all.length - from;
    const size = left <= SIZE.max ? left : Math.min(at(all, from).size, left - SIZE.min);
    rounds.push(all.slice(from, from + size));
    from += size;
  }
  return rounds;
}

function at<T>(list: readonly T[], index: number): T {
  const found = list[index];
  if (found === undefined) throw new RangeError(`no element ${index} of ${list.length}`);
  return found;
}

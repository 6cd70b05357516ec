import { randomInt } from "node:crypto";
import { appendFileSync, writeFileSync } from "node:fs";
import { stringify } from "yaml";

import { table } from "../../../components/table";
import { down, hostsUp } from "../lab";
import { PROJECT_STACK_FILE, readStackFile } from "../project";
import { pulumi, recoverStack, unlock } from "../pulumi";
import { LabError, must } from "../run";
import type { Node } from "../topology";
import { checkDestroyed, checkUp, type Violation, VIOLATIONS } from "./checks";
import { type Effect, inflict } from "./faults";
import { command, endSessions, interruption, lastStep, start, stop, undisturbed } from "./operation";
import { FAULTS, type Kill, NODES, type Operation, plan, type Round } from "./plan";
import { within } from "./tools";

/** What the command line gives. */
export interface ChaosOptions {
  /** How many operations are disturbed. */
  kills: number;
  /** Decides everything that is left to chance; default: a random one. */
  seed?: number;
  /** File that gets every line also as JSON, appended; default: none. */
  log?: string;
}

/** Length of an operation that nobody disturbs, seconds, as measured in the lab. */
const USUAL_SECONDS: Record<Operation, number> = { up: 75, change: 45, destroy: 10 };
/** How long an operation may go on after its fault: Ray's gate alone takes three minutes to give up a worker that has no room. */
const END_MS = 300_000;
const TOLD_LINES = 40;
/** The settings that are changed here, and put back. */
const CHANGED_SETTINGS = ["dgx-spark-serving:benchmark", "dgx-spark-serving:server"];

/** Disturbs, checks, starts afresh after a violation, and sums up; returns the exit code. */
export async function chaos({ kills, seed = randomInt(2 ** 31), log }: ChaosOptions): Promise<number> {
  const since = performance.now();
  const rounds = plan(seed, kills);
  const tell = (text: string, event: Record<string, unknown>): void => {
    process.stdout.write(`${text}\n`);
    if (log !== undefined) appendFileSync(log, `${JSON.stringify({ time: new Date().toISOString(), ...event })}\n`);
  };
  tell(`seed ${seed}: ${kills} kills in ${rounds.length} rounds`, { event: "start", seed, kills });
  const interrupt = (): void => {
    interruption.abort(new LabError("interrupted"));
  };
  process.once("SIGINT", interrupt);
  process.once("SIGTERM", interrupt);

  let nodes = await hostsUp();
  if (nodes.length !== NODES) throw new LabError(`chaos is for ${NODES} nodes, and the lab has ${nodes.length}`);
  await recoverStack();
  const kept = changedSettings();
  const done: Kill[] = [];
  const found: Violation[] = [];
  try {
    await deploy();
    for (const round of rounds) {
      const violations = await playRound(round, nodes, done, tell);
      violations.forEach(({ kind, what, output }) => {
        const end = output.trimEnd().split("\n").slice(-TOLD_LINES);
        const event = { event: "violation", kind, what, seed, round: round.number, output: end };
        tell(`  ${kind}, seed ${seed}, round ${round.number}: ${what}\n    ${end.join("\n    ")}`, event);
      });
      found.push(...violations);
      if (violations.length > 0) nodes = await startAfresh(nodes);
    }
  } finally {
    process.off("SIGINT", interrupt);
    process.off("SIGTERM", interrupt);
    await endSessions();
    writeSettings(kept);
    const minutes = (performance.now() - since) / 60_000;
    const counts = Object.fromEntries(
      VIOLATIONS.map((kind) => [kind, found.filter((violation) => violation.kind === kind).length]),
    );
    const summed = Object.entries(counts).map(([kind, count]) => `${kind} ${count}`);
    tell(
      `\n${killTable(done)}\n\nseed ${seed}: ${done.length} kills, ${summed.join(", ")}, ${minutes.toFixed(1)} minutes`,
      { event: "summary", seed, kills: done.length, ...counts, minutes },
    );
  }
  return found.length === 0 ? 0 : 1;
}

type Tell = (text: string, event: Record<string, unknown>) => void;

/** A round's kills and its check; adds to `done`. Trouble of the lab itself is a violation too: the run goes on afresh. */
async function playRound(round: Round, nodes: Node[], done: Kill[], tell: Tell): Promise<Violation[]> {
  const violations: Violation[] = [];
  const since = performance.now();
  let clearedCreates = 0;
  for (const kill of round.kills) {
    const { text, event, violations: here } = await guarded(() => disturb(kill, nodes));
    done.push(kill);
    violations.push(...here);
    tell(killLine(kill, text), { event: "kill", round: round.number, ...kill, ...event });
  }
  const { violations: wrong } = await guarded(async () => {
    const destroyed = round.endsDestroyed ? await checkDestroyed(nodes) : [];
    const up = await checkUp(nodes);
    clearedCreates = up.clearedCreates;
    return { text: "", event: {}, violations: [...destroyed, ...up.violations] };
  });
  violations.push(...wrong);
  const pluginsLeft = await endSessions();
  const seconds = (performance.now() - since) / 1000;
  const notes = [
    round.endsDestroyed ? "destroyed and up again" : "up",
    wrong.length === 0 ? "converged" : `${wrong.length} violations`,
    ...(clearedCreates > 0 ? [`${clearedCreates} pending creates cleared by refresh`] : []),
    ...(pluginsLeft > 0 ? [`${pluginsLeft} processes of killed engines ended`] : []),
  ];
  tell(`     check of round ${round.number}: ${notes.join(", ")}; the round took ${seconds.toFixed(0)} s`, {
    event: "check",
    round: round.number,
    endsDestroyed: round.endsDestroyed,
    violations: wrong.map(({ kind, what }) => ({ kind, what })),
    clearedCreates,
    pluginsLeft,
    seconds,
  });
  return violations;
}

interface Outcome {
  text: string;
  event: Record<string, unknown>;
  violations: Violation[];
}

/** Does a part of a round; what it throws is its outcome, unless the person has interrupted. */
async function guarded(part: () => Promise<Outcome>): Promise<Outcome> {
  try {
    return await part();
  } catch (error) {
    if (interruption.signal.aborted) throw error;
    const what = error instanceof Error ? error.message : String(error);
    return { text: `failed: ${what}`, event: { error: what }, violations: [{ kind: "repair", what, output: "" }] };
  }
}

/** One operation with its fault, until both are over. */
async function disturb(kill: Kill, nodes: Node[]): Promise<Outcome> {
  const node = nodes[(kill.node ?? 1) - 1];
  if (node === undefined) throw new LabError(`there is no node ${String(kill.node)}`);
  await unlock();
  if (kill.change !== undefined) {
    const { key, value } = kill.change;
    await must(command("config", "set", "--path", key, "--", value), "pulumi");
  }
  const since = performance.now();
  const operation = start([kill.operation === "destroy" ? "destroy" : "up"]);
  const wasEarly = await within(operation.ended, kill.moment * USUAL_SECONDS[kill.operation] * 1000);
  const seconds = (performance.now() - since) / 1000;
  const resource = lastStep(operation.output);
  const struck = performance.now();
  let effect: Effect | undefined;
  let isStuck: boolean;
  try {
    effect = await inflict[kill.fault]({ operation, node, cutSeconds: kill.cutSeconds });
  } finally {
    isStuck = !(await within(operation.ended, END_MS));
    if (isStuck) await stop(operation);
    await effect?.undo?.();
  }
  const { hit } = effect;
  const exit = operation.exit ?? "SIGKILL";
  const moreSeconds = (performance.now() - struck) / 1000;
  const notes = [
    ...(isStuck ? ["stuck"] : []),
    wasEarly ? "had ended" : `ended ${moreSeconds.toFixed(0)} s later`,
    `with ${exit}`,
    ...(hit ? [] : ["(nothing to hit)"]),
  ];
  const what = `${kill.operation} did not end within ${END_MS / 1000} s of ${kill.fault}`;
  return {
    text: `${seconds.toFixed(1).padStart(5)} s  ${(resource === "" ? "-" : resource).padEnd(36)}  ${notes.join(" ")}`,
    event: { seconds, resource, exit, hit, wasEarly, isStuck, moreSeconds },
    violations: isStuck ? [{ kind: "stuck", what, output: operation.output }] : [],
  };
}

function killLine({ number, operation, fault, node }: Kill, outcome: string): string {
  const place = node === undefined ? "operator" : `spark-${node}`;
  return `${String(number).padStart(4)} ${operation.padEnd(7)}  ${fault.padEnd(15)}  ${place.padEnd(8)}  ${outcome}`;
}

/** How often each fault struck each operation. */
export function killTable(kills: Pick<Kill, "operation" | "fault">[]): string {
  const operations = Object.keys(USUAL_SECONDS);
  const row = (name: string, list: typeof kills): string[] => [
    name,
    ...operations.map((operation) => String(list.filter((kill) => kill.operation === operation).length)),
    String(list.length),
  ];
  return table([
    ["fault", ...operations, "all"],
    ...FAULTS.map((name) =>
      row(
        name,
        kills.filter(({ fault }) => fault === name),
      ),
    ),
    row("all", kills),
  ]);
}

/** Brings the deployment up, without its benchmark. */
async function deploy(): Promise<void> {
  // Not `command`: this makes the stack where there is none yet.
  const code = await pulumi(["config", "set", "--path", "benchmark.enabled", "false"]);
  if (code !== 0) throw new LabError("the benchmark could not be switched off");
  const { exit, output } = await undisturbed("up");
  if (exit !== 0) throw new LabError(`an undisturbed up ended with ${String(exit)}:\n${output}`);
}

/** Takes away what a violation has left, with the whole lab where destroy is not enough, and brings the deployment up. */
async function startAfresh(nodes: Node[]): Promise<Node[]> {
  const { violations } = await guarded(async () => {
    const left = await checkDestroyed(nodes);
    if (left.length === 0) await deploy();
    return { text: "", event: {}, violations: left };
  });
  if (violations.length === 0) return nodes;
  await down();
  const afresh = await hostsUp(NODES);
  await deploy();
  return afresh;
}

function changedSettings(): Record<string, unknown> {
  const config = readStackFile(PROJECT_STACK_FILE)?.config ?? {};
  return Object.fromEntries(CHANGED_SETTINGS.map((key) => [key, config[key]]));
}

/** Puts settings into the stack's file; not the whole file back, since a lab made anew has other keys in it. */
function writeSettings(settings: Record<string, unknown>): void {
  const file = readStackFile(PROJECT_STACK_FILE);
  if (file === undefined) return;
  const config = { ...file.config, ...settings };
  writeFileSync(PROJECT_STACK_FILE, stringify({ ...file, config })); // without those that are undefined: they were not there
}

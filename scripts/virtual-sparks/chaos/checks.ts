import { containerName, nodeDirectory } from "../../../components/container";
import { STACK } from "../project";
import { pendingOperations, stackOutputs } from "../pulumi";
import { chat, parseOutputs } from "../result";
import { LabError } from "../run";
import { type Node, USER } from "../topology";
import { until } from "../wait";
import { interruption, isUnchanged, type PulumiRun, undisturbed, UNDISTURBED_MS } from "./operation";
import { lines, onNode } from "./tools";

/** How long a step that nobody waits for may take to end on its node. */
const STEP_ENDS_MS = 20_000;
/** A container that died at the last moment comes back by its restart policy, and loads the model. */
const ANSWER_MS = 180_000;

/** `lost`: what must be there is not. `orphan`: what must not be there is. `repair`: more than up, destroy, refresh and cancel is needed. */
export const VIOLATIONS = ["lost", "orphan", "repair", "stuck"] as const;

export interface Violation {
  kind: (typeof VIOLATIONS)[number];
  what: string;
  /** What the operation before it printed. */
  output: string;
}

/** Whether an operation ended well: nothing, or what was wrong. */
function unless0({ exit, output, isStuck }: PulumiRun & { isStuck: boolean }, what: string): Violation[] {
  if (isStuck) return [{ kind: "stuck", what: `${what} did not end within ${UNDISTURBED_MS / 1000} s`, output }];
  return exit === 0 ? [] : [{ kind: "repair", what: `${what} ended with ${String(exit)}`, output }];
}

/** Brings everything up once, and looks whether all of it is there and nothing else. */
export async function checkUp(nodes: Node[]): Promise<{ violations: Violation[]; clearedCreates: number }> {
  const first = await undisturbed("up", "--refresh");
  const failed = unless0(first, "up --refresh");
  if (failed.length > 0) return { violations: failed, clearedCreates: 0 };
  const { output } = first;
  const clearedCreates = await clearPendingCreates();
  const second = await undisturbed("up");
  const violations = [
    ...unless0(second, "the up after it"),
    ...(second.exit === 0 && !isUnchanged(second.output)
      ? [{ kind: "lost", what: "the up after it found something to do", output: second.output } as const]
      : []),
    ...(await pendingOperations()).map(
      (urn) => ({ kind: "repair", what: `pending operation: ${urn}`, output }) as const,
    ),
    ...(await silence()).map((what) => ({ kind: "lost", what, output }) as const),
    ...(await wrongContainers(nodes, output)),
    ...(await lingeringSteps(nodes)).map((what) => ({ kind: "orphan", what, output }) as const),
  ];
  return { violations, clearedCreates };
}

/** Takes everything away once, and looks whether something is left. */
export async function checkDestroyed(nodes: Node[]): Promise<Violation[]> {
  const destroy = await undisturbed("destroy", "--refresh");
  const failed = unless0(destroy, "destroy --refresh");
  if (failed.length > 0) return failed;
  const left = [...(await leavings(nodes)), ...(await lingeringSteps(nodes))];
  return left.map((what) => ({ kind: "orphan", what, output: destroy.output }));
}

/**
 * What a killed engine was making stays noted in the stack through every up and refresh, by Pulumi's design; the documented
 * cure is a refresh that is told to forget it. Returns how many there were.
 */
async function clearPendingCreates(): Promise<number> {
  const pending = await pendingOperations();
  if (pending.length > 0) await undisturbed("refresh", "--clear-pending-creates");
  return pending.length;
}

/** Asks the model until it answers; what is wrong when it does not. */
async function silence(): Promise<string[]> {
  let why = "";
  const answers = async (): Promise<boolean> => {
    interruption.signal.throwIfAborted();
    try {
      await chat(parseOutputs(await stackOutputs()));
      return true;
    } catch (error) {
      if (!(error instanceof LabError)) throw error;
      why = error.message;
      return false;
    }
  };
  return (await until(answers, ANSWER_MS, 2000)) ? [] : [why];
}

async function wrongContainers(nodes: Node[], output: string): Promise<Violation[]> {
  const format = '{{.Names}} {{.State}} {{.Label "dgx-spark-serving.deployment"}}';
  const ofNode = async (node: Node): Promise<Violation[]> => {
    const expected = [containerName(STACK, "ray"), ...(node.isHead ? [containerName(STACK, "server")] : [])].map(
      (name) => `${name} running ${STACK}`,
    );
    const present = lines(await onNode(node, "docker", "ps", "--all", "--format", format));
    const missing = expected.filter((line) => !present.includes(line));
    const surplus = present.filter((line) => !expected.some((other) => line.startsWith(`${other.split(" ", 1)[0]} `)));
    return [
      ...missing.map((line): Violation => {
        return { kind: "lost", what: `${node.name}: not there: ${line}; there: ${present.join(", ")}`, output };
      }),
      ...surplus.map((line): Violation => ({ kind: "orphan", what: `${node.name}: container ${line}`, output })),
    ];
  };
  return (await Promise.all(nodes.map(ofNode))).flat();
}

/** Steps that go on although nobody waits for them, in words. */
async function lingeringSteps(nodes: Node[]): Promise<string[]> {
  const isStep = (line: string): boolean => line.includes(`python3 -B - ${nodeDirectory(STACK)}`);
  const ofNode = async (node: Node): Promise<string[]> => {
    let left: string[] = [];
    await until(
      async () => {
        left = lines(await onNode(node, "ps", "-eo", "args=")).filter(isStep);
        return left.length === 0;
      },
      STEP_ENDS_MS,
      1000,
    );
    return left.map((line) => `${node.name}: process ${line.slice(0, 150)}`);
  };
  return (await Promise.all(nodes.map(ofNode))).flat();
}

/** What of the deployment is on the nodes, when nothing may be, in words. */
async function leavings(nodes: Node[]): Promise<string[]> {
  const places: Record<string, string[]> = {
    container: ["docker", "ps", "--all", "--format", "{{.Names}}"],
    volume: ["docker", "volume", "ls", "--quiet"],
    image: ["docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "dgx-spark-serving"],
    folder: ["find", `/home/${USER}`, "-maxdepth", "1", "-name", ".dgx-spark*"],
    key: ["sed", "-n", "/dgx-spark-serving/p", `/home/${USER}/.ssh/authorized_keys`],
  };
  const ofNode = async (node: Node): Promise<string[]> => {
    const found = await Promise.all(
      Object.entries(places).map(async ([place, argv]) =>
        lines(await onNode(node, ...argv)).map((line) => `${node.name}: ${place} ${line}`),
      ),
    );
    return found.flat();
  };
  return (await Promise.all(nodes.map(ofNode))).flat();
}

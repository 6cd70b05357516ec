import { setTimeout as sleep } from "node:timers/promises";

import { boot, execOn, health, powerCut } from "../hosts";
import { setLink } from "../network";
import { signal } from "../processes";
import { LabError } from "../run";
import type { Node } from "../topology";
import { until } from "../wait";
import { type Member, members, type PulumiRun } from "./operation";
import type { Fault } from "./plan";
import { COMMAND_MS, onNode, within } from "./tools";

/** How long a fault waits for the process that it is for, while the operation only begins. */
const TARGET_MS = 5000;
const BETWEEN_INTERRUPTS_MS = 1000;
const DOCKER_BACK_MS = 60_000;

/** What a fault did. */
export interface Effect {
  /** Whether there was something for it to hit. */
  hit: boolean;
  /** Takes it back, once the operation has ended. */
  undo?: () => Promise<void>;
}

interface Target {
  operation: PulumiRun;
  /** The node that is struck; for a fault on the operator's machine the head. */
  node: Node;
  cutSeconds: number;
}

const FILLER = "/var/lib/docker/chaos-filler";

/** Docker's disk is a sparse file of its own: what is only allocated in it takes nothing of this machine's. The rest is written. */
const FILL = `
  free=$(df --output=avail --block-size=1 /var/lib/docker | tail -n 1)
  fallocate --length $((free - 16 * 1024 * 1024)) ${FILLER}
  dd if=/dev/zero of=${FILLER} bs=4K count=16384 oflag=append conv=notrunc status=none || true`;

export const inflict: Record<Fault, (target: Target) => Promise<Effect>> = {
  "engine-kill": ({ operation }) => send(operation, operation.pid, "SIGKILL"),
  "plugins-kill": ({ operation }) =>
    killMembers(operation, (all) => all.filter(({ program }) => program.startsWith("pulumi-resource-"))),
  "program-kill": ({ operation }) =>
    killMembers(operation, (all) => {
      const hosts = all.filter(({ program }) => program === "pulumi-language-nodejs").map(({ pid }) => pid);
      return all.filter(({ program, parent }) => program === "node" && hosts.includes(parent));
    }),
  // To the whole group, as Ctrl-C on a terminal.
  interrupt: ({ operation }) => send(operation, -operation.pid, "SIGINT"),
  "interrupt-twice": async ({ operation }) => {
    const first = await send(operation, -operation.pid, "SIGINT");
    await within(operation.ended, BETWEEN_INTERRUPTS_MS);
    await send(operation, -operation.pid, "SIGINT");
    return first;
  },
  "link-cut": async ({ node, cutSeconds }) => {
    await setLink(node, "management", "down");
    try {
      await sleep(cutSeconds * 1000);
    } finally {
      await setLink(node, "management", "up");
    }
    return { hit: true };
  },
  "power-cut": async ({ node }) => {
    await powerCut(node);
    return { hit: true, undo: () => boot(node) };
  },
  "docker-restart": ({ node }) => signalDocker(node, "TERM"),
  "docker-kill": ({ node }) => signalDocker(node, "KILL"),
  "rank-kill": ({ node }) => killOn(node, ["--full", "^ray::RayWorkerProc"]),
  "ray-kill": ({ node }) => killOn(node, ["--exact", node.isHead ? "gcs_server" : "raylet"]),
  "server-kill": ({ node }) => killOn(node, ["--full", "^VLLM::EngineCore"]),
  "disk-full": async ({ node }) => {
    const undo = async (): Promise<void> => {
      await onNode(node, "rm", "--force", FILLER);
    };
    try {
      await onNode(node, "bash", "-e", "-c", FILL);
    } catch (error) {
      await undo();
      throw error;
    }
    return { hit: true, undo };
  },
};

function send(operation: PulumiRun, pid: number, name: NodeJS.Signals): Promise<Effect> {
  const hit = operation.exit === undefined;
  if (hit) signal(pid, name);
  return Promise.resolve({ hit });
}

/** Kills processes of an operation; one that has only begun is given a moment to start them. */
async function killMembers(operation: PulumiRun, choose: (all: Member[]) => Member[]): Promise<Effect> {
  let chosen: Member[] = [];
  await until(
    async () => {
      chosen = choose(await members(operation.pid));
      return chosen.length > 0 || operation.exit !== undefined;
    },
    TARGET_MS,
    100,
  );
  chosen.forEach(({ pid }) => {
    signal(pid, "SIGKILL");
  });
  return { hit: chosen.length > 0 };
}

/** Kills the processes of a node that `pgrep` finds there; it sees no others. */
async function killOn(node: Node, pattern: string[]): Promise<Effect> {
  const { stdout } = await execOn(node, ["pgrep", ...pattern], { timeout: COMMAND_MS });
  const pids = stdout.split("\n").filter((line) => line !== "");
  if (pids.length > 0) await execOn(node, ["kill", "-KILL", ...pids], { timeout: COMMAND_MS });
  return { hit: pids.length > 0 };
}

/** Ends dockerd, which the node's init starts again; taken back when another one answers. */
async function signalDocker(node: Node, name: "TERM" | "KILL"): Promise<Effect> {
  const before = await dockerPid(node);
  const { code } = await execOn(node, ["kill", `-${name}`, before], { timeout: COMMAND_MS });
  const isBack = async (): Promise<boolean> => (await dockerPid(node)) !== before && (await health(node)).dockerd;
  const undo = async (): Promise<void> => {
    if (!(await until(isBack, DOCKER_BACK_MS, 500))) throw new LabError(`Docker of ${node.name} does not come back`);
  };
  return { hit: code === 0, undo };
}

/** Number of dockerd's process on its node; "" between two of them. */
async function dockerPid(node: Node): Promise<string> {
  return (await execOn(node, ["cat", "/run/docker.pid"], { timeout: COMMAND_MS })).stdout.trim();
}

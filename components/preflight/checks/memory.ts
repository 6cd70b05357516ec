import { memoryDemand } from "../../memory";
import type { Settings } from "../../schema";
import type { ContainerFacts, GpuProcess, NodeFacts } from "../facts";
import type { NodeProbe } from "../probe";
import { gibibytes, problem, type Problem } from "../problem";

const gib = 1024 ** 3;

/** The head runs Ray's control service, the API server and the benchmark's client beside its rank. */
const headReserveBytes = 4 * gib;

/** Swapped pages that are left of long ago do no harm. */
const swapLimitBytes = gib;

/** Whether the engine's memory is there on every node, with what the deployment itself holds counted as free. */
export function checkMemory(probes: readonly NodeProbe[], settings: Settings, deployment: string): Problem[] {
  const { share, atLeastBytes } = memoryDemand(settings);
  return probes.flatMap(({ node, facts }, index) => {
    if (facts === null) return [];
    const isHead = index === 0;
    const { totalBytes, availableBytes, freeBytes, swapTotalBytes, swapFreeBytes } = facts.memory;
    const problems: Problem[] = [];
    if (totalBytes !== null && availableBytes !== null) {
      const own = ownMemoryBytes(facts, deployment);
      const available = availableBytes + (own ?? 0);
      const reserve = isHead && settings.accelerator === "gb10" ? headReserveBytes : 0;
      const budget = Math.max(share * totalBytes, atLeastBytes);
      const short = available < budget + reserve;
      // Where it is not known what the deployment itself holds, that may be all that is missing.
      if (short && own !== null) {
        const found = `${gibibytes(available)} of ${gibibytes(totalBytes)} are available`;
        const expected = `${gibibytes(budget)} for the engine${reserve > 0 ? `, and ${gibibytes(reserve)} beside it on the head` : ""}`;
        problems.push(problem("memory-short", node.name, { found, expected, mend: mendMemory(facts, deployment) }));
      } else if (settings.accelerator === "gb10" && own === 0 && freeBytes !== null && freeBytes < budget) {
        const found = `${gibibytes(freeBytes)} free, the rest of the ${gibibytes(available)} available is page cache`;
        problems.push(problem("page-cache", node.name, { found, expected: `${gibibytes(budget)} free` }));
      }
    }
    const swapped = swapTotalBytes === null || swapFreeBytes === null ? 0 : swapTotalBytes - swapFreeBytes;
    if (swapped > swapLimitBytes) {
      const found = `${gibibytes(swapped)} are swapped out`;
      problems.push(problem("swap-in-use", node.name, { found, expected: `less than ${gibibytes(swapLimitBytes)}` }));
    }
    return [...problems, ...foreignGpuUsers(node.name, facts, deployment)];
  });
}

/** The deployment's own containers that run; null: not known. */
function ownContainers({ containers }: NodeFacts, deployment: string): ContainerFacts[] | null {
  return containers?.filter((each) => each.running && each.deployment === deployment) ?? null;
}

/** Whether a process is the deployment's own; null: not known. */
function isOwn({ container }: GpuProcess, own: readonly ContainerFacts[] | null): boolean | null {
  if (container === "" || own?.length === 0) return false;
  return container === null || own === null ? null : own.some(({ id }) => id === container);
}

/** What the deployment's own containers hold: it comes free before they are made anew. Null: not known. */
function ownMemoryBytes(facts: NodeFacts, deployment: string): number | null {
  const own = ownContainers(facts, deployment);
  if (own?.length === 0) return 0;
  const onGpu = facts.gpuProcesses?.filter((each) => isOwn(each, own) !== false);
  if (own === null || onGpu === undefined || onGpu.some((each) => isOwn(each, own) === null)) return null;
  return [...own, ...onGpu].reduce<number | null>(
    (sum, { memoryBytes }) => (sum === null || memoryBytes === null ? null : sum + memoryBytes),
    0,
  );
}

function strangersOnGpu(facts: NodeFacts, deployment: string): string[] {
  const own = ownContainers(facts, deployment);
  return (facts.gpuProcesses ?? [])
    .filter((each) => isOwn(each, own) === false)
    .map(
      ({ name, pid, memoryBytes }) =>
        `${name} (pid ${pid}${memoryBytes === null ? "" : `, ${gibibytes(memoryBytes)}`})`,
    );
}

function foreignGpuUsers(node: string, facts: NodeFacts, deployment: string): Problem[] {
  const users = strangersOnGpu(facts, deployment);
  return users.length === 0
    ? []
    : [problem("gpu-in-use", node, { found: users.join(", "), expected: "no other user of the GPU" })];
}

function mendMemory(facts: NodeFacts, deployment: string): string {
  const [stranger] = strangersOnGpu(facts, deployment);
  const end = stranger === undefined ? "end what holds it (ps aux --sort=-rss | head)" : `end ${stranger}`;
  return `${end}, restart the Spark, or lower server.gpuMemoryUtilization`;
}

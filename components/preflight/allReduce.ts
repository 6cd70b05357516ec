import { z } from "zod";
import { routeTo, sshOptions } from "../connection";
import { containerName, nodeDirectory } from "../container";
import { rayAddress } from "../ray";
import type { Settings } from "../schema";
import { runStepOnNode } from "../ssh";
import { allow } from "./judge";
import { problem, type Problem } from "./problem";
import { json } from "./readFacts";
import { ncclVerdict, readNcclDebug } from "./readers/nccl";

/** Large enough for bandwidth to count, small enough for a Spark whose memory is nearly full (a 16 GB test froze one). */
const tensorBytes = 64 * 1024 ** 2;

/** The first CUDA call on a node takes some 10 s; a wrong interface shows as a wait without end. */
const limitSeconds = 120;

/** How fast the ranks add up a tensor over the fabric, and by which transport. */
export interface AllReduceFigures {
  backend: "nccl" | "gloo";
  tensorBytes: number;
  /** Bus bandwidth as nccl-tests count it: what each link carries, 10^9 bytes a second. */
  busGigabytesPerSecond: number;
  /** What NCCL uses, by name of the node; null: its log does not say, or it is not NCCL. */
  transport: Record<string, string | null>;
}

export interface AllReduceResult {
  /** Null: there is no figure, and a problem says why. */
  figures: AllReduceFigures | null;
  problems: Problem[];
}

const measuredSchema = z.object({ busBytesPerSecond: z.number(), logs: z.record(z.string(), z.string()) });
type Measured = z.output<typeof measuredSchema>;

/** Measures on the head's Ray container, which must be up with all nodes; what was measured for it before is told again. */
export async function runAllReduce(settings: Settings, deployment: string): Promise<AllReduceResult> {
  const { nodes, ssh } = settings;
  const [head] = nodes;
  const route = routeTo(head, nodes);
  const options = sshOptions(route, ssh);
  const directory = nodeDirectory(deployment);
  const args = [
    ...(["ray", "server"] as const).map((role) => containerName(deployment, role)),
    ...[`${directory}/fabric.json`, String(limitSeconds), rayAddress(head)],
    ...[settings.accelerator === "gb10" ? "nccl" : "gloo", String(tensorBytes)],
    // In an order that says nothing: with the same nodes it is the same measurement.
    ...nodes.map(({ fabric }) => fabric.address).sort(),
  ];
  const { code, stdout, stderr } = await runStepOnNode(
    route,
    options,
    { script: "measure_fabric.py", args },
    { directory, node: head.name, step: "all-reduce", timeoutSeconds: limitSeconds + 30 },
  );
  const measured = code === 0 ? measuredSchema.safeParse(json(stdout)).data : undefined;
  if (measured !== undefined) return judgeAllReduce(measured, settings);
  // What was printed there in place of figures, or before them: by a shell that greets people.
  const found = (code === 0 ? stdout.slice(0, 300) : stderr).trim() || "no answer";
  return { figures: null, problems: [problem("all-reduce-failed", head.name, { found, expected: "a sum" })] };
}

/** The figures, and what is wrong with them: too slow, or not the way that the settings say. */
export function judgeAllReduce(
  { busBytesPerSecond, logs }: Measured,
  { nodes, accelerator, fabric, preflight }: Settings,
): AllReduceResult {
  const busGigabytesPerSecond = Math.round(busBytesPerSecond / 1e7) / 100;
  const problems: Problem[] = [];
  const seen = nodes.map((node) => {
    const debug = readNcclDebug(logs[node.fabric.address] ?? "");
    const faults = accelerator === "gb10" ? ncclVerdict(debug, node.fabric.hcas) : [];
    const expected = `NET/IB over ${node.fabric.hcas.join(" and ")}`;
    const code = debug.transport === "Socket" ? "rdma-unused" : "rdma-partly";
    problems.push(...faults.map((found) => problem(code, node.name, { found, expected })));
    return [node.name, debug.plugin] as const;
  });
  if (fabric.minimumGBps !== undefined && busGigabytesPerSecond < fabric.minimumGBps) {
    const found = `${busGigabytesPerSecond} GB/s`;
    const expected = `fabric.minimumGBps ${fabric.minimumGBps}`;
    problems.push(problem("all-reduce-slow", nodes[0].name, { found, expected }));
  }
  return {
    figures: {
      backend: accelerator === "gb10" ? "nccl" : "gloo",
      tensorBytes,
      busGigabytesPerSecond,
      transport: Object.fromEntries(seen),
    },
    problems: allow(problems, preflight.allow),
  };
}

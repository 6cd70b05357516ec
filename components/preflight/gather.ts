import * as fs from "node:fs";
import * as path from "node:path";
import { z } from "zod";
import { describeRoute, type Route, routeTo, sshOptions } from "../connection";
import { rayPorts } from "../ray";
import type { NodeSettings, Settings } from "../schema";
import { type Finished, Session } from "../ssh";
import type { FabricFacts, ModelFacts, NodeProbe } from "./probe";
import { problem, type Problem } from "./problem";
import { json, readFacts } from "./readFacts";

/** Port that the nodes try each other on, TCP and UDP, on the fabric. Next to Ray's. */
export const fabricProbePort = 6382;

/** Limit of one question to a node once the connection stands, seconds: more than `probe.py` gives its scripts. */
const answerSeconds = 25;

const scripts = path.join(__dirname, "../../scripts/remote");

const peerSchema = z.object({
  ports: z.record(z.string(), z.string().nullable()),
  mtuBytes: z.int().nullable(),
  mtuPassed: z.boolean().nullable(),
  tcpBytesPerSecond: z.number().nullable(),
});
const fabricSchema = z.object({ listening: z.string().nullable(), peers: z.record(z.string(), peerSchema) });
const modelSchema = z.object({ files: z.int(), bytes: z.int(), digest: z.string() });
const outputSchema = z.object({ code: z.int(), stdout: z.string(), stderr: z.string() });
const answerSchema = z.object({ facts: outputSchema, model: outputSchema });
const fabricAnswerSchema = z.object({ fabric: outputSchema });

/**
 * Asks all nodes at once, each over one connection, and then has those that answered try the fabric between them, at the same
 * moment. Nothing is changed on any.
 */
export async function gather(settings: Settings): Promise<NodeProbe[]> {
  const sessions = settings.nodes.map((node) => open(routeTo(node, settings.nodes), settings));
  const { path: model } = settings.model;
  const question = JSON.stringify({
    facts: { source: source("facts.py"), args: [model] },
    model: { source: source("check_model.py"), args: [model] },
  });
  const probes = await Promise.all(
    settings.nodes.map((node, index) => askFacts(routeTo(node, settings.nodes), sessions[index] as Session, question)),
  );
  const present = probes.filter(({ failure }) => failure === null).map(({ node }) => node);
  const tried = await Promise.all(
    probes.map(async (probe, index) =>
      probe.failure === null && present.length > 1
        ? { ...probe, fabric: await askFabric(probe.node, present, sessions[index] as Session, settings) }
        : probe,
    ),
  );
  for (const session of sessions) session.close();
  await Promise.all(sessions.map(({ finished }) => finished));
  return tried.map((probe) => blameJumpHost(probe, tried));
}

function open(route: Route, { ssh }: Settings): Session {
  const options = sshOptions(route, ssh);
  return new Session(
    route,
    [...options, "-o", `ConnectionAttempts=${ssh.connectAttempts}`],
    ["python3", "-c", source("probe.py")],
    ssh.connectTimeoutSeconds * ssh.connectAttempts * 2 + 2 * answerSeconds,
  );
}

/** What the machine says of itself, and of the model. */
async function askFacts(route: Route, session: Session, question: string): Promise<NodeProbe> {
  const { node } = route;
  const sentAt = Date.now() / 1000;
  const said = await session.ask(question);
  const asked = { sentAt, answeredAt: Date.now() / 1000 };
  const none = { node, facts: null, model: null, fabric: null };
  if (said === undefined) return { ...none, failure: connectionProblem(route, await session.finished) };
  const answer = answerSchema.safeParse(json(said)).data;
  if (answer?.facts.code !== 0) return { ...none, failure: probeFailed(node, answer?.facts.stderr ?? said) };
  const facts = readFacts(answer.facts.stdout, asked);
  return { node, failure: null, facts, model: modelFacts(answer.model), fabric: null };
}

/** What a node sees of the others that are there. */
async function askFabric(
  node: NodeSettings,
  present: readonly NodeSettings[],
  session: Session,
  { nodes: [head] }: Settings,
): Promise<FabricFacts> {
  const at = present.indexOf(node);
  // Each begins with the next one, so that no node is everybody's first.
  const peers = [...present.slice(at + 1), ...present.slice(0, at)].map((peer) => ({
    name: peer.name,
    address: peer.fabric.address,
    ports: rayPorts(peer === head),
  }));
  const plan = { ...node.fabric, ports: rayPorts(node === head), probePort: fabricProbePort, peers };
  const said = await session.ask(
    JSON.stringify({ fabric: { source: source("fabric.py"), args: [JSON.stringify(plan)] } }),
  );
  const answer = fabricAnswerSchema.safeParse(json(said ?? "")).data;
  return answer === undefined ? { listening: "the connection broke", peers: {} } : fabricFacts(answer.fabric);
}

function source(script: string): string {
  return fs.readFileSync(path.join(scripts, script), "utf8");
}

function modelFacts({ code, stdout, stderr }: z.output<typeof outputSchema>): ModelFacts {
  const facts = modelSchema.safeParse(json(stdout)).data;
  return code === 0 && facts !== undefined ? facts : { problem: lastLine(stderr) };
}

function fabricFacts({ code, stdout, stderr }: z.output<typeof outputSchema>): FabricFacts {
  const facts = fabricSchema.safeParse(json(stdout)).data;
  return code === 0 && facts !== undefined ? facts : { listening: lastLine(stderr), peers: {} };
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}

function probeFailed({ name }: NodeSettings, said: string): Problem {
  return problem("probe-failed", name, { found: lastLine(said) || "no answer", expected: "facts as JSON" });
}

/**
 * What the `ssh` program's complaints mean. The first that fits counts. The texts are OpenSSH's; of a network failure
 * they hold the C library's, which differ between systems, so that one is the rest.
 */
const complaints = [
  { pattern: /host key verification failed|identification has changed|no hostkey alg/i, code: "ssh-host-key" },
  { pattern: /permission denied \(|too many authentication failures/i, code: "ssh-key-refused" },
] as const;

/** Through a jump host it looks the same when the node does not answer at all. */
const frozen = /timed out during banner exchange/i;

/** @param done how `ssh` ended; its code 255 says that there was no connection */
export function connectionProblem(route: Route, done: Finished): Problem {
  const { node } = route;
  if (done.code !== 255 && done.code !== null) return probeFailed(node, done.stderr);
  const said = done.stderr
    .split("\n")
    .map((line) => line.trim())
    .filter(
      (line) =>
        line !== "" && !/^(Warning: Permanently|@+|Connection closed by UNKNOWN|stdio forwarding failed)/.test(line),
    );
  const rest = route.via === undefined && frozen.test(done.stderr) ? "ssh-frozen" : "ssh-unreachable";
  const code = complaints.find(({ pattern }) => pattern.test(done.stderr))?.code ?? rest;
  const found = `${describeRoute(route)}: ${done.code === null ? "no answer in time" : said.slice(-2).join("; ")}`;
  return problem(code, node.name, { found, expected: "a connection" });
}

/** A node behind one that can't be reached has no problem of its own that could be known. */
function blameJumpHost(probe: NodeProbe, probes: readonly NodeProbe[]): NodeProbe {
  const via = probes.find(({ node }) => node.name === probe.node.via);
  if (probe.failure === null || via?.failure == null || via.failure.code === "probe-failed") return probe;
  const found = `it is reached through ${via.node.name}, which can't be used: ${via.failure.code}`;
  return {
    ...probe,
    failure: problem("ssh-jump-host", probe.node.name, { found, expected: "a jump host that works" }),
  };
}

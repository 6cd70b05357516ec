import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { z } from "zod";
import { describeRoute, type Route, routeTo, sshOptions } from "../connection";
import { rayPorts } from "../ray";
import type { NodeSettings, Settings } from "../schema";
import { type Finished, Session } from "../ssh";
import { imageBytes } from "./checks/docker";
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
  const sessions = openAll(settings);
  const { path: model } = settings.model;
  const question = JSON.stringify({
    facts: { source: source("facts.py"), args: [model, String(imageBytes(settings))] },
    model: { source: source("check_model.py"), args: [model] },
  });
  const probes = await Promise.all(
    settings.nodes.map((node, index) =>
      askFacts(routeTo(node, settings.nodes), sessions[index] as Promise<Opened>, question),
    ),
  );
  const present = probes.filter(({ failure }) => failure === null).map(({ node }) => node);
  const tried = await Promise.all(
    probes.map(async (probe, index) =>
      probe.failure === null && present.length > 1
        ? { ...probe, fabric: await askFabric(probe.node, present, sessions[index] as Promise<Opened>, settings) }
        : probe,
    ),
  );
  const opened = await Promise.all(sessions);
  for (const { session } of opened) session.close();
  await Promise.all(opened.map(({ session }) => session.finished));
  return tried.map((probe) => blameJumpHost(probe, tried));
}

interface Opened {
  session: Session;
  /** Whether there is a connection: without Python on the node there is one all the same. */
  connected: boolean;
}

/**
 * A session a node, in the order of the list. Those behind another node share its connection: its sshd refuses some where
 * many come at once. Where there is none, they share its session: how that one ended says why.
 */
function openAll(settings: Settings): Promise<Opened>[] {
  // In /tmp, as a socket's path must be short. `ssh` removes it.
  const socket = `/tmp/spark-${randomBytes(6).toString("hex")}-%C`;
  const sessions = new Map<string, Promise<Opened>>();
  const openOne = async (node: NodeSettings): Promise<Opened> => {
    const route = routeTo(node, settings.nodes);
    const jump = await (route.via && sessionOf(route.via));
    const session = jump?.connected === false ? jump.session : open(route, settings, socket);
    const connected = (await session.ask("{}")) !== undefined || !withoutConnection(await session.finished);
    return { session, connected };
  };
  const sessionOf = (node: NodeSettings): Promise<Opened> => {
    const session = sessions.get(node.name) ?? openOne(node);
    sessions.set(node.name, session);
    return session;
  };
  return settings.nodes.map(sessionOf);
}

function open(route: Route, { ssh }: Settings, socket: string): Session {
  const options = [...sshOptions(route, ssh, socket), "-o", "ControlMaster=auto"];
  return new Session(
    route,
    [...options, "-o", `ConnectionAttempts=${ssh.connectAttempts}`],
    ["python3", "-c", source("probe.py")],
    ssh.connectTimeoutSeconds * ssh.connectAttempts * 2 + 2 * answerSeconds,
  );
}

/** What the machine says of itself, and of the model. */
async function askFacts(route: Route, opened: Promise<Opened>, question: string): Promise<NodeProbe> {
  const { node } = route;
  const { session } = await opened;
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
  opened: Promise<Opened>,
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
  const { session } = await opened;
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

/** Whether `ssh` ended for want of a connection, which its code 255 says. */
function withoutConnection({ code }: Finished): boolean {
  return code === 255 || code === null;
}

/** @param done how `ssh` ended */
export function connectionProblem(route: Route, done: Finished): Problem {
  const { node } = route;
  if (!withoutConnection(done)) return probeFailed(node, done.stderr);
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

import { randomBytes } from "node:crypto";
import { z } from "zod";
import { nodeDirectory } from "../container";
import { type Route, routeTo, sshOptions } from "../connection";
import { rayPorts } from "../ray";
import type { NodeSettings, Settings } from "../schema";
import { Session } from "../ssh";
import { scriptText } from "../step";
import { imageBytes } from "./checks/docker";
import { blameJumpHost, connectionProblem, cut, probeFailed, withoutConnection } from "./connectionProblem";
import type { FabricFacts, ModelFacts, NodeProbe } from "./probe";
import { problem, type Problem } from "./problem";
import { json, readFacts } from "./readFacts";

/** Port that the nodes try each other on, TCP and UDP, on the fabric. Next to Ray's. */
export const fabricProbePort = 6382;

const peerSchema = z.object({
  ports: z.record(z.string(), z.string().nullable()),
  mtuBytes: z.int().nullable(),
  mtuPassed: z.boolean().nullable(),
  tcpBytesPerSecond: z.number().nullable(),
});
const fabricSchema = z.object({ listening: z.string().nullable(), peers: z.record(z.string(), peerSchema) });
const modelSchema = z.union([
  z.object({ files: z.int(), bytes: z.int(), digest: z.string() }),
  z.object({ rsync: z.boolean(), changed: z.array(z.string()) }),
]);
const outputSchema = z.object({ code: z.int(), stdout: z.string(), stderr: z.string() });
type Output = z.output<typeof outputSchema>;

/**
 * Asks all nodes at once, each over one connection, and then has those that answered try the fabric between them, at the same
 * moment. Nothing is changed on any.
 *
 * @param deployment its folder on the nodes tells what it brought there
 * @param answerSeconds limit of one question to a node that answers, more than `probe.py` gives its scripts
 */
export async function gather(settings: Settings, deployment: string, answerSeconds = 25): Promise<NodeProbe[]> {
  const sessions = openAll(settings);
  const { path: model, source } = settings.model;
  const facts = { source: scriptText("facts.py"), args: [model, String(imageBytes(settings))] };
  const there = { source: scriptText("check_model.py"), args: [model] };
  const brought = { source: scriptText("brought_model.py"), args: [model, nodeDirectory(deployment)] };
  const isThere = (index: number) => source === undefined || (source.kind === "path" && index === 0);
  const at = (index: number) => sessions[index] as Promise<Opened>;
  const probes = await Promise.all(
    settings.nodes.map(async (node, index) =>
      askFacts(
        routeTo(node, settings.nodes),
        await at(index),
        { facts, model: isThere(index) ? there : brought },
        answerSeconds,
      ),
    ),
  );
  const present = probes.filter(({ failure }) => failure === null).map(({ node }) => node);
  const tried = await Promise.all(
    probes.map(async (probe, index) =>
      probe.failure === null && present.length > 1
        ? { ...probe, ...(await askFabric(probe.node, present, await at(index), settings, answerSeconds)) }
        : probe,
    ),
  );
  for (const { session } of await Promise.all(sessions)) session.close();
  return Promise.all(
    tried.map(async (probe) => {
      const via = settings.nodes.findIndex(({ name }) => name === probe.node.via);
      return via === -1 ? probe : blameJumpHost(probe, tried[via] as NodeProbe, (await at(via)).session);
    }),
  );
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
  const { ssh } = settings;
  // In /tmp, as a socket's path must be short. `ssh` removes it.
  const socket = `/tmp/spark-${randomBytes(6).toString("hex")}-%C`;
  const sessions = new Map<string, Promise<Opened>>();
  const openOne = async (node: NodeSettings): Promise<Opened> => {
    const route = routeTo(node, settings.nodes);
    const jump = await (route.via && sessionOf(route.via));
    if (jump?.connected === false) return jump;
    const session = open(route, settings, socket);
    // Whose answer names it was made by our program, and not by a shell that greets people.
    const greeting = { [randomBytes(6).toString("hex")]: { source: "", args: [] } };
    const answer = await run(session, greeting, ssh.connectTimeoutSeconds * ssh.connectAttempts * 2);
    return { session, connected: answer !== undefined || !withoutConnection(await session.finished) };
  };
  const sessionOf = (node: NodeSettings): Promise<Opened> => {
    const session = sessions.get(node.name) ?? openOne(node);
    sessions.set(node.name, session);
    return session;
  };
  return settings.nodes.map(sessionOf);
}

function open(route: Route, { ssh }: Settings, socket: string): Session {
  // Only a talkative one tells that the way through the jump host was opened, up to the node.
  const talkative = (option: string) => option.replace(/^ProxyCommand=ssh /, "ProxyCommand=ssh -v ");
  const options = [...sshOptions(route, ssh, socket).map(talkative), "-o", "ControlMaster=auto"];
  return new Session(
    route,
    // Verbose: it tells when it has logged in.
    [...options, "-o", `ConnectionAttempts=${ssh.connectAttempts}`, "-o", "LogLevel=VERBOSE"],
    ["python3", "-c", scriptText("probe.py")],
  );
}

/** A script for `probe.py`. */
interface Script {
  source: string;
  args: readonly string[];
}

/** What scripts print that run on a node at once; undefined: there is no answer. */
function run<Name extends string>(
  session: Session,
  scripts: Record<Name, Script>,
  limitSeconds: number,
): Promise<Record<Name, Output> | undefined> {
  const answer = z.record(z.enum(Object.keys(scripts) as Name[]), outputSchema);
  return session.ask(JSON.stringify(scripts), (line) => answer.safeParse(json(line)).data, limitSeconds);
}

/** What the machine says of itself, and of the model. */
async function askFacts(
  route: Route,
  { session }: Opened,
  scripts: Record<"facts" | "model", Script>,
  answerSeconds: number,
): Promise<NodeProbe> {
  const { node } = route;
  const sentAt = Date.now() / 1000;
  const answer = await run(session, scripts, answerSeconds);
  const asked = { sentAt, answeredAt: Date.now() / 1000 };
  const none = { node, facts: null, model: null, fabric: null };
  if (answer === undefined) return { ...none, failure: connectionProblem(route, await session.finished) };
  if (session.noise !== "") return { ...none, failure: shellTalks(node, session.noise) };
  const { facts, model } = answer;
  if (facts.code !== 0) return { ...none, failure: probeFailed(node, lastLine(facts.stderr)) };
  return { node, failure: null, facts: readFacts(facts.stdout, asked), model: modelFacts(model), fabric: null };
}

/** What a node sees of the others that are there. One that was lost since its facts is a failure. */
async function askFabric(
  node: NodeSettings,
  present: readonly NodeSettings[],
  { session }: Opened,
  { nodes }: Settings,
  answerSeconds: number,
): Promise<Pick<NodeProbe, "failure" | "fabric">> {
  const [head] = nodes;
  const at = present.indexOf(node);
  // Each begins with the next one, so that no node is everybody's first.
  const peers = [...present.slice(at + 1), ...present.slice(0, at)].map((peer) => ({
    name: peer.name,
    address: peer.fabric.address,
    ports: rayPorts(peer === head),
  }));
  const plan = { ...node.fabric, ports: rayPorts(node === head), probePort: fabricProbePort, peers };
  const script = { source: scriptText("fabric.py"), args: [JSON.stringify(plan)] };
  const answer = await run(session, { fabric: script }, answerSeconds);
  return answer === undefined
    ? { failure: connectionProblem(routeTo(node, nodes), await session.finished), fabric: null }
    : { failure: null, fabric: fabricFacts(answer.fabric) };
}

function modelFacts({ code, stdout, stderr }: Output): ModelFacts {
  const facts = modelSchema.safeParse(json(stdout)).data;
  return code === 0 && facts !== undefined ? facts : { problem: lastLine(stderr) };
}

function fabricFacts({ code, stdout, stderr }: Output): FabricFacts {
  const facts = fabricSchema.safeParse(json(stdout)).data;
  return code === 0 && facts !== undefined ? facts : { listening: lastLine(stderr), peers: {} };
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}

/** A shell that prints something where there is no terminal. Facts could be read all the same, but not what follows. */
function shellTalks({ name, user }: NodeSettings, noise: string): Problem {
  const [line = ""] = noise.split("\n");
  return problem("probe-failed", name, {
    found: `the shell of ${user} prints ${JSON.stringify(cut(line))} when nobody is there`,
    expected: "nothing but what is asked for: it would go for an answer of Docker's, or of a step's",
    mend: "silence it for shells that are not interactive: in ~/.bashrc there, above that line: [ -t 1 ] || return",
  });
}

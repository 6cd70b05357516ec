import { createHash, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { z } from "zod";
import { describeRoute, type Route, routeTo, sshOptions } from "../connection";
import { rayPorts, urlHost } from "../ray";
import type { NodeSettings, Settings } from "../schema";
import { type Finished, Session } from "../ssh";
import { imageBytes } from "./checks/docker";
import type { ProblemCode } from "./codes";
import type { FabricFacts, ModelFacts, NodeProbe } from "./probe";
import { problem, type Problem } from "./problem";
import { json, readFacts } from "./readFacts";

/** Port that the nodes try each other on, TCP and UDP, on the fabric. Next to Ray's. */
export const fabricProbePort = 6382;

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
type Output = z.output<typeof outputSchema>;

/**
 * Asks all nodes at once, each over one connection, and then has those that answered try the fabric between them, at the same
 * moment. Nothing is changed on any.
 *
 * @param answerSeconds limit of one question to a node that answers, more than `probe.py` gives its scripts
 */
export async function gather(settings: Settings, answerSeconds = 25): Promise<NodeProbe[]> {
  const sessions = openAll(settings);
  const { path: model } = settings.model;
  const asked = {
    facts: { source: source("facts.py"), args: [model, String(imageBytes(settings))] },
    model: { source: source("check_model.py"), args: [model] },
  };
  const at = (index: number) => sessions[index] as Promise<Opened>;
  const probes = await Promise.all(
    settings.nodes.map(async (node, index) =>
      askFacts(routeTo(node, settings.nodes), await at(index), asked, answerSeconds),
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
    ["python3", "-c", source("probe.py")],
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
  const script = { source: source("fabric.py"), args: [JSON.stringify(plan)] };
  const answer = await run(session, { fabric: script }, answerSeconds);
  return answer === undefined
    ? { failure: connectionProblem(routeTo(node, nodes), await session.finished), fabric: null }
    : { failure: null, fabric: fabricFacts(answer.fabric) };
}

function source(script: string): string {
  return fs.readFileSync(path.join(scripts, script), "utf8");
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

function probeFailed({ name }: NodeSettings, found: string): Problem {
  return problem("probe-failed", name, { found: cut(found) || "no answer", expected: "facts as JSON" });
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

/** Enough to know it by. */
function cut(text: string): string {
  return text.slice(0, 300);
}

/**
 * What the `ssh` program's complaints mean. The first that fits counts. The texts are OpenSSH's; of a network failure
 * they hold the C library's, which differ between systems, so that one is the rest.
 */
const complaints = [
  {
    pattern: /host key verification failed|identification has changed|no hostkey alg|no matching host key type/i,
    code: "ssh-host-key",
  },
  { pattern: /permission denied \(|too many authentication failures/i, code: "ssh-key-refused" },
] as const;

/** There was a connection; through a jump host it is said also while that one has none. */
const frozen = /timed out during banner exchange/i;

/** What the `ssh` through a jump host says when that one has connected to the node. */
const opened = /^debug1: mux_client_request_stdio_fwd: master session id/m;

/** What it says when that one could not; the reason stands at the shared connection. */
const notOpened = /Stdio forwarding request failed: .*/;

/** Why a connection could not pass others on. */
const openFailed = /^channel \d+: open failed: (?:connect failed: )?(.*\S)/gm;

/** What `ssh` tells of a key that is not the one expected. */
const offeredKey = /^The fingerprint for the (\S+) key sent by the remote host is\s+(SHA256:[A-Za-z0-9+/]+)/m;

/** What `ssh` says when it has logged in. */
const loggedIn = /^Authenticated to /m;

/** What `ssh` says that explains nothing. */
const idle =
  /^(Warning: Permanently|@+|Connection closed by UNKNOWN|stdio forwarding failed|Authenticated to|Transferred: |Bytes per|OpenSSH_|debug1: |Connection to UNKNOWN)/;

/** Whether `ssh` ended for want of a connection, which its code 255 says, or was given up before it had one. */
function withoutConnection({ code, stderr }: Finished): boolean {
  return code === 255 || (code === null && !loggedIn.test(stderr));
}

/** @param done how `ssh` ended */
export function connectionProblem(route: Route, done: Finished): Problem {
  const { node } = route;
  const lines = (text: string) =>
    text
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "" && !idle.test(line));
  const said = [...lines(done.stderr).slice(-2), ...lines(done.stdout).slice(-1)].join("; ") || "no answer";
  if (!withoutConnection(done)) return probeFailed(node, done.code === null ? `logged in; ${said}` : said);
  const tell = (code: ProblemCode, found: string, expected = "a connection") =>
    problem(code, node.name, { found: cut(`${describeRoute(route)}: ${found}`), expected });
  const code = complaints.find(({ pattern }) => pattern.test(done.stderr))?.code;
  if (code === "ssh-host-key") {
    const [, type, seen] = offeredKey.exec(done.stderr) ?? [];
    return tell(code, seen === undefined ? said : `it showed the ${type ?? ""} key ${seen}`, describeKey(node.hostKey));
  }
  if (code !== undefined) return tell(code, said);
  if (!frozen.test(done.stderr)) return tell("ssh-unreachable", said);
  if (route.via === undefined || opened.test(done.stderr)) return tell("ssh-frozen", said);
  return tell("ssh-unreachable", `${route.via.name} has no answer of ${urlHost(node.host)}:${node.port}`);
}

/** A host key by its type and end, and as `ssh` tells the one that it was shown. */
function describeKey(hostKey: string): string {
  const [type = "", key = ""] = hostKey.split(" ");
  const fingerprint = createHash("sha256").update(Buffer.from(key, "base64")).digest("base64").replace(/=+$/, "");
  return `hostKey ${type} …${key.slice(-12)}, SHA256:${fingerprint}`;
}

/**
 * A node behind one that can't be reached has no problem of its own that could be known. Behind one that can, and was not let
 * through to the node, it has the reason that this one gives.
 *
 * @param session the jump host's, which has ended
 */
async function blameJumpHost(probe: NodeProbe, via: NodeProbe, session: Session): Promise<NodeProbe> {
  const { node, failure } = probe;
  if (failure === null) return probe;
  if (via.failure === null || via.failure.code === "probe-failed") {
    if (!notOpened.test(failure.found)) return probe;
    const reasons = [...(await session.finished).stderr.matchAll(openFailed)].map(([, reason]) => reason);
    const told = `${via.node.name} can't reach ${urlHost(node.host)}:${node.port}`;
    const found = [told, [...new Set(reasons)].join(", or ")].filter((part) => part !== "").join(": ");
    return { ...probe, failure: { ...failure, found: failure.found.replace(notOpened, () => found) } };
  }
  const found = `it is reached through ${via.node.name}, which can't be used: ${via.failure.code}`;
  return {
    ...probe,
    failure: problem("ssh-jump-host", node.name, { found, expected: "a jump host that works" }),
  };
}

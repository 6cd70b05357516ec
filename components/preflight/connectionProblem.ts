import { createHash } from "node:crypto";
import { describeRoute, type Route } from "../connection";
import { urlHost } from "../ray";
import type { NodeSettings } from "../schema";
import type { Finished, Session } from "../ssh";
import type { ProblemCode } from "./codes";
import type { NodeProbe } from "./probe";
import { problem, type Problem } from "./problem";

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
export function withoutConnection({ code, stderr }: Finished): boolean {
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

/** A node that answers otherwise than it should. */
export function probeFailed({ name }: NodeSettings, found: string): Problem {
  return problem("probe-failed", name, { found: cut(found) || "no answer", expected: "facts as JSON" });
}

/** Enough to know it by. */
export function cut(text: string): string {
  return text.slice(0, 300);
}

/**
 * A node behind one that can't be reached has no problem of its own that could be known. Behind one that can, and was not let
 * through to the node, it has the reason that this one gives.
 *
 * @param session the jump host's, which has ended
 */
export async function blameJumpHost(probe: NodeProbe, via: NodeProbe, session: Session): Promise<NodeProbe> {
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

import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { distance } from "fastest-levenshtein";
import { describe, description, type Problem, removeCommand, setCommand, spellPath, valueAt } from "./problems";
import { relationProblems, scenarioTokens } from "./relations";
import { shellLine } from "./quote";
import { schema, type Settings, suites } from "./schema";

function shapeProblems(raw: unknown, shape: ReturnType<typeof schema.safeParse>): Problem[] {
  return (shape.error?.issues ?? []).flatMap((issue): Problem[] => {
    const at = issue.path.filter((part) => typeof part !== "symbol");
    if (issue.code === "unrecognized_keys") {
      const known = Object.keys((at.length === 0 ? description : describe(at))?.properties ?? {});
      if (at.length === 0) known.push(...secretKeys);
      return issue.keys.map((key) => {
        const meant = nearest(key, known);
        return {
          key: spellPath([...at, key]),
          value: valueAt(raw, [...at, key]),
          message: `no such key; ${meant === undefined ? "" : `did you mean \`${meant}\`? `}known here: ${known.join(", ")}`,
          // What stands below it is kept.
          fix: meant === undefined ? removeCommand([...at, key]) : `in the stack's file: rename it to \`${meant}\``,
        };
      });
    }
    const value = valueAt(raw, at);
    if (issue.code === "invalid_value" && at[0] === "preflight" && at[1] === "allow") {
      const meant = nearest(String(value), issue.values.map(String));
      const message = `no code of an error; docs/troubleshooting.md lists them`;
      const fix =
        meant === undefined
          ? removeCommand(at)
          : shellLine(["pulumi", "config", "set", "--path", spellPath(at), meant]);
      return [
        {
          key: spellPath(at),
          value,
          message: meant === undefined ? message : `${message}; did you mean \`${meant}\`?`,
          fix,
        },
      ];
    }
    const message = value === undefined ? "missing" : issue.message.replace(/^Invalid input: /, "");
    return [{ key: spellPath(at), value, message, fix: setCommand(at) }];
  });
}

/** The secrets, which are no part of the settings. */
const secretKeys = ["huggingFaceToken", "registryPassword"];

/** What was probably meant by a word, upper and lower case alike: the known one with the fewest letters to change, if they are few. */
function nearest(word: string, known: readonly string[]): string | undefined {
  const [best] = known
    .map((each) => ({ each, share: distance(word.toLowerCase(), each.toLowerCase()) / each.length }))
    .sort((a, b) => a.share - b.share);
  return best !== undefined && best.share <= 0.4 ? best.each : undefined;
}

/**
 * Checks a whole configuration.
 *
 * @param raw the configuration as an object, its keys without the project's name
 * @returns the settings, or every problem that was found
 */
export function parseSettings(raw: unknown): { settings: Settings } | { problems: Problem[] } {
  const shape = schema.safeParse(raw);
  const settings = shape.data && withFittingSuite(raw, shape.data);
  // With the defaults where the shape is right; else with what can be judged of it.
  const problems = [...shapeProblems(raw, shape), ...relationProblems(settings ?? raw)];
  return settings && problems.length === 0 ? { settings } : { problems };
}

/** Where nobody chose scenarios, those of the tool's suite that the context has room for; the first in any case, which then says why not. */
function withFittingSuite(raw: unknown, settings: Settings): Settings {
  const { benchmark, server } = settings;
  if (valueAt(raw, ["benchmark", "scenarios"]) !== undefined) return settings;
  const room = server.maxModelLen ?? Infinity;
  const scenarios = suites[benchmark.tool].filter((each, index) => index === 0 || scenarioTokens(each) <= room);
  return { ...settings, benchmark: { ...benchmark, scenarios } };
}

/**
 * Reads the private key that `ssh.privateKeyPath` names.
 *
 * @returns the key's text, undefined without a path (the SSH agent is used), or the problem
 */
export function readPrivateKey(file: string | undefined): { key: string | undefined } | { problem: Problem } {
  if (file === undefined) return { key: undefined };
  const at = ["ssh", "privateKeyPath"];
  const refuse = (message: string) => ({ problem: { key: spellPath(at), value: file, message, fix: setCommand(at) } });
  let key: string;
  try {
    key = fs.readFileSync(expandHome(file), "utf8");
  } catch (error) {
    return refuse(`can't be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (!/^-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----/.test(key)) return refuse("not a private key file");
  if (isEncrypted(key))
    return refuse("locked by a passphrase: add it to the SSH agent (`ssh-add`) and remove this setting");
  return { key };
}

/** `~/x` as a path in the operator's home. */
export function expandHome(file: string): string {
  return file.startsWith("~/") ? path.join(os.homedir(), file.slice(2)) : file;
}

/** Of a login both must be there. */
function loginProblems(raw: Readonly<Record<string, unknown>>): Problem[] {
  const at = ["registry", "username"];
  const username = valueAt(raw, at);
  const needsBoth = "registry.username and registryPassword are a login together";
  if (username !== undefined && raw["registryPassword"] === undefined) {
    const fix = shellLine(["pulumi", "config", "set", "--secret", "registryPassword", "PASSWORD"]);
    return [{ key: "registryPassword", value: undefined, message: `missing; ${needsBoth}`, fix }];
  }
  if (username === undefined && raw["registryPassword"] !== undefined) {
    return [{ key: spellPath(at), value: undefined, message: `missing; ${needsBoth}`, fix: setCommand(at) }];
  }
  return [];
}

function isEncrypted(key: string): boolean {
  if (/^Proc-Type: .*ENCRYPTED|BEGIN ENCRYPTED/m.test(key)) return true;
  // OpenSSH's format begins with "openssh-key-v1\0" and the cipher's name, each string after its 4-byte length.
  const body = Buffer.from(key.replace(/-----[^-]+-----/g, ""), "base64");
  return body.subarray(0, 15).toString() === "openssh-key-v1\0" && body.subarray(19, 23).toString() !== "none";
}

/**
 * Checks a stack's configuration, and reads the private key that it names.
 *
 * @param raw the configuration as an object, its keys without the project's name; secrets among it are left aside
 */
export function checkConfiguration(
  raw: Readonly<Record<string, unknown>>,
): { settings: Settings; privateKey: string | undefined } | { problems: Problem[] } {
  const plain = Object.fromEntries(Object.entries(raw).filter(([key]) => !secretKeys.includes(key)));
  const parsed = parseSettings(plain);
  const login = loginProblems(raw);
  const keyFile = valueAt(plain, ["ssh", "privateKeyPath"]);
  const key = readPrivateKey(typeof keyFile === "string" ? keyFile : undefined);
  if ("problems" in parsed || "problem" in key || login.length > 0) {
    const others = "problem" in key ? [...login, key.problem] : login;
    return { problems: [...("problems" in parsed ? parsed.problems : []), ...others] };
  }
  return { settings: parsed.settings, privateKey: key.key };
}

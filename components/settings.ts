import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import * as pulumi from "@pulumi/pulumi";
import {
  describe,
  description,
  type Problem,
  removeCommand,
  renderProblems,
  setCommand,
  spellPath,
  valueAt,
} from "./problems";
import { relationProblems } from "./relations";
import { schema, type Settings } from "./schema";

function shapeProblems(raw: unknown, shape: ReturnType<typeof schema.safeParse>): Problem[] {
  return (shape.error?.issues ?? []).flatMap((issue): Problem[] => {
    const at = issue.path.filter((part) => typeof part !== "symbol");
    if (issue.code === "unrecognized_keys") {
      const known = Object.keys((at.length === 0 ? description : describe(at))?.properties ?? {}).join(", ");
      return issue.keys.map((key) => ({
        key: spellPath([...at, key]),
        value: valueAt(raw, [...at, key]),
        message: `no such key; known here: ${known}`,
        fix: removeCommand([...at, key]),
      }));
    }
    const value = valueAt(raw, at);
    const message = value === undefined ? "missing" : issue.message.replace(/^Invalid input: /, "");
    return [{ key: spellPath(at), value, message, fix: setCommand(at) }];
  });
}

/**
 * Checks a whole configuration.
 *
 * @param raw the configuration as an object, its keys without the project's name
 * @returns the settings, or every problem that was found
 */
export function parseSettings(raw: unknown): { settings: Settings } | { problems: Problem[] } {
  const shape = schema.safeParse(raw);
  // With the defaults where the shape is right; else with what can be judged of it.
  const problems = [...shapeProblems(raw, shape), ...relationProblems(shape.success ? shape.data : raw)];
  return shape.success && problems.length === 0 ? { settings: shape.data } : { problems };
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

function isEncrypted(key: string): boolean {
  if (/^Proc-Type: .*ENCRYPTED|BEGIN ENCRYPTED/m.test(key)) return true;
  // OpenSSH's format begins with "openssh-key-v1\0" and the cipher's name, each string after its 4-byte length.
  const body = Buffer.from(key.replace(/-----[^-]+-----/g, ""), "base64");
  return body.subarray(0, 15).toString() === "openssh-key-v1\0" && body.subarray(19, 23).toString() !== "none";
}

/** What the program needs beyond the settings: secrets, which stay wrapped. */
export interface Loaded {
  settings: Settings;
  /** Private key for SSH; undefined: the agent. */
  privateKey: pulumi.Output<string> | undefined;
  /** Hugging Face token; undefined: the engine is kept offline. */
  huggingFaceToken: pulumi.Output<string> | undefined;
}

/**
 * Reads the stack's configuration, once.
 *
 * @throws pulumi.RunError (shown without a stack trace) that names every problem
 */
export function loadSettings(): Loaded {
  const config = new pulumi.Config();
  const prefix = `${config.name}:`;
  const own = Object.entries(pulumi.runtime.allConfig()).filter(([key]) => key.startsWith(prefix));
  const raw = Object.fromEntries(
    own
      .map(([key, value]) => [key.slice(prefix.length), parseValue(value)] as const)
      .filter(([key]) => key !== "huggingFaceToken"),
  );
  const parsed = parseSettings(raw);
  const keyFile = valueAt(raw, ["ssh", "privateKeyPath"]);
  const key = readPrivateKey(typeof keyFile === "string" ? keyFile : undefined);
  if ("problems" in parsed || "problem" in key) {
    const problems = [...("problems" in parsed ? parsed.problems : []), ...("problem" in key ? [key.problem] : [])];
    throw new pulumi.RunError(renderProblems(problems));
  }
  return {
    settings: parsed.settings,
    privateKey: key.key === undefined ? undefined : pulumi.secret(key.key),
    huggingFaceToken: config.getSecret("huggingFaceToken"),
  };
}

/** Pulumi hands objects, lists, numbers and booleans over as JSON, and strings as they are. */
function parseValue(value: string): unknown {
  if (!/^\s*[[{]|^(true|false)$/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

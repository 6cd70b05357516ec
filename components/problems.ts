import { z } from "zod";
import { shellLine } from "./quote";
import { schema } from "./schema";

/** One mistake in the configuration. */
export interface Problem {
  /** Path as `pulumi config` spells it, e.g. `nodes[1].fabric.address`. */
  key: string;
  /** The value seen; undefined when the key is missing. */
  value: unknown;
  /** What is wrong with it. */
  message: string;
  /** The command, or the advice, that mends it. */
  fix: string;
}

/** Where a value stands in the configuration. */
export type Path = readonly (string | number)[];

/** What is read of the settings' JSON schema: the texts that `schema.ts` gives each key. */
export interface Description {
  description?: string;
  example?: string;
  default?: unknown;
  properties?: Record<string, Description>;
  required?: string[];
  items?: Description;
}

/** The description of the whole configuration. */
export const description = z.toJSONSchema(schema, { unrepresentable: "any" }) as Description;

/** Spells a path as `pulumi config set --path` takes it. */
export function spellPath(at: Path): string {
  return at
    .map((part, index) => {
      if (typeof part === "number") return `[${part}]`;
      if (!/^[A-Za-z0-9_-]+$/.test(part)) return `[${JSON.stringify(part)}]`;
      return index === 0 ? part : `.${part}`;
    })
    .join("");
}

/** The description of one key; undefined where there is no such key. */
export function describe(at: Path): Description | undefined {
  return at.reduce<Description | undefined>(
    (type, part) => (typeof part === "number" ? type?.items : type?.properties?.[part]),
    description,
  );
}

/** The value at a path, undefined where the path leads nowhere. */
export function valueAt(root: unknown, at: Path): unknown {
  return at.reduce<unknown>((value, part) => {
    const inside = typeof value === "object" && value !== null && Object.hasOwn(value, part);
    return inside ? (value as Record<string | number, unknown>)[part] : undefined;
  }, root);
}

/** The command that sets a key, with its example as the value. */
export function setCommand(at: Path): string {
  const example = describe(at)?.example;
  if (example === undefined || /^[[{]/.test(example)) {
    return `in the stack's file: ${spellPath(at)}${example === undefined ? "" : `: ${example}`} (docs/configuration.md)`;
  }
  const value = example.startsWith("~") ? example : shellLine([example]);
  return `${shellLine(["pulumi", "config", "set", "--path", spellPath(at)])} ${value}`;
}

/** The command that removes a key. */
export function removeCommand(at: Path): string {
  return shellLine(["pulumi", "config", "rm", "--path", spellPath(at)]);
}

/**
 * A value as a person sees it, whole or not at all: Pulumi takes secrets out of what is printed, and would not know a part of
 * one, nor one with its characters escaped.
 */
function shown(value: unknown): string {
  if (value === undefined) return "(not set)";
  const text = typeof value === "string" ? `"${value}"` : JSON.stringify(value);
  return text.length > 200 || /\p{Cc}/u.test(text) ? `(a value of ${text.length} characters)` : text;
}

/** The problems as a person reads them, all at once. */
export function renderProblems(problems: readonly Problem[]): string {
  const title = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  const blocks = problems.map(({ key, value, message, fix }) => {
    // The example is right in its form, and in its place may be just what is wrong.
    const given = ` ${shellLine([String(value)])}`;
    const mend = fix.endsWith(given) ? `${fix.slice(0, -given.length)} ANOTHER-VALUE` : fix;
    return `  ${key} = ${shown(value)}\n    ${message}\n    mend: ${mend}`;
  });
  return `${title} in the configuration; nothing was changed.\n\n${blocks.join("\n\n")}\n`;
}

import * as fs from "node:fs";
import { parse, stringify } from "yaml";
import { type Configuration, type Expected, type Row, rows } from "../changes";
import { configuration, lab, must, stackFile } from "./run";

/** The rows whose change means something in the lab too; the others name things that only the stack `dev` has. */
export const labRows = rows.filter(
  ({ name, from, action }) => from === undefined && "settings" in action && !/token|digest/i.test(name),
);

/** The lab's settings with this change, as long as `run` takes. */
export async function having<T>(change: (config: Configuration) => Configuration, run: () => Promise<T>): Promise<T> {
  const kept = fs.readFileSync(stackFile, "utf8");
  const changed = Object.entries(change(configuration()));
  const config = Object.fromEntries(changed.map(([key, value]) => [`dgx-spark-serving:${key}`, value]));
  fs.writeFileSync(stackFile, stringify({ ...(parse(kept) as object), config }));
  try {
    return await run();
  } finally {
    fs.writeFileSync(stackFile, kept);
  }
}

const lists: Readonly<Record<string, keyof Expected>> = {
  create: "create",
  "create-replacement": "replace",
  "delete-replaced": "replace",
  replace: "replace",
  update: "update",
  delete: "delete",
};

/** What an operation does, or did, to each resource, components aside. */
function sorted(steps: { op: string; urn: string }[]): Expected {
  const found: Record<keyof Expected, Set<string>> = {
    create: new Set(),
    replace: new Set(),
    update: new Set(),
    delete: new Set(),
  };
  for (const { op, urn } of steps) {
    const list = lists[op];
    const [type = "", name = ""] = urn.split("::").slice(-2);
    if (list !== undefined && !/dgx-spark-serving:index:[A-Za-z]+$|pulumi:pulumi:Stack$/.test(type))
      found[list].add(name);
  }
  const names = (list: keyof Expected) => [...found[list]].sort();
  return { create: names("create"), replace: names("replace"), update: names("update"), delete: names("delete") };
}

/** What a preview says. */
export async function previewed(...args: string[]): Promise<Expected> {
  const text = await must(lab("pulumi", "preview", "--json", ...args));
  return sorted((JSON.parse(text) as { steps: { op: string; urn: string }[] }).steps);
}

/** What an update does. */
export async function updated(...args: string[]): Promise<Expected> {
  const text = await must(lab("pulumi", "up", "--yes", "--json", ...args));
  const events = text.split("\n").filter((line) => line.startsWith("{"));
  const steps = events.flatMap((line) => {
    const { resOutputsEvent } = JSON.parse(line) as { resOutputsEvent?: { metadata: { op: string; urn: string } } };
    return resOutputsEvent ? [resOutputsEvent.metadata] : [];
  });
  return sorted(steps);
}

/** What a preview is to say of a row. */
export function expectedPreview({ expected, previewOnly = [], notInPreview = [] }: Row): Expected {
  return {
    ...expected,
    update: [...expected.update, ...previewOnly].sort(),
    delete: expected.delete.filter((name) => !notInPreview.includes(name)),
  };
}

import * as fs from "node:fs";
import * as path from "node:path";
import { isDeepStrictEqual } from "node:util";
import { beforeEach, expect, test, vi } from "vitest";
import { type Configuration, type Expected, keyFiles, type Row, rows } from "../changes";
import { configurationOf, type Material, runStack, type StackRun } from "./stack";

/** Texts of files that are others, or not there, on disk: by absolute path. */
const texts = vi.hoisted(() => new Map<string, string>());

vi.mock("node:fs", async (importOriginal) => {
  const real = await importOriginal<typeof fs>();
  const readFileSync = (file: string, encoding: "utf8") =>
    texts.get(path.resolve(file)) ?? real.readFileSync(file, encoding);
  return { ...real, readFileSync };
});

beforeEach(() => {
  texts.clear();
  for (const file of keyFiles)
    texts.set(file, `-----BEGIN PRIVATE KEY-----\n${path.basename(file)}\n-----END PRIVATE KEY-----\n`);
});

/** What the engine does to a resource. */
type Fate = keyof Expected | "same";

/** What the Docker provider changes on a container that runs (resource_docker_container.go: not ForceNew). */
const updatable: ReadonlySet<string> = new Set([
  ...["restart", "maxRetryCount", "destroyGraceSeconds"],
  ...["memory", "memoryReservation", "memorySwap", "cpuShares", "cpuSet"],
]);

/** Whether another value of an input makes the resource anew, and is not just told to it. */
function replaces(type: string, property: string): boolean {
  switch (type) {
    case "command:local:Command":
    case "command:remote:Command":
      return property === "triggers";
    case "docker:index/container:Container":
      return !updatable.has(property);
    case "random:index/randomPassword:RandomPassword":
      return true;
    case "pulumi:providers:docker":
      return false;
    default:
      throw new Error(`how the engine compares a ${type} is not known here`);
  }
}

interface Part extends Material {
  type: string;
}

/** Whether it has an output that is not known before an update of it in place. */
const isStep = (part: Part | undefined) => part?.type.startsWith("command:") ?? false;

/** The resources of a run by name, without the components, of which the engine changes nothing. */
function partsOf({ resources, materials }: StackRun): Map<string, Part> {
  return new Map(
    resources.flatMap(({ name, type }) => {
      const material = materials.get(name);
      return material === undefined || type.startsWith("dgx-spark-serving:") ? [] : [[name, { type, ...material }]];
    }),
  );
}

/**
 * What the engine does to each resource when a stack that was made by one run is to be as another one says.
 *
 * A resource that is made or made anew has an id and outputs that the mocks do not show: what replaces when it changes
 * replaces what is made from it. Another provider alone does not: Docker's does not ask for it (DiffConfig).
 *
 * @param options.replace a resource that is to be made anew in any case
 * @param options.isPreview as a preview shows it: what a step that is updated will print is not known then
 */
function changes(
  before: StackRun,
  after: StackRun,
  options: { replace?: string | undefined; isPreview: boolean },
): Map<string, Fate> {
  const [olds, news] = [partsOf(before), partsOf(after)];
  const fates = new Map<string, Fate>();
  const judge = (name: string): Fate => {
    const [old, now] = [olds.get(name), news.get(name)];
    if (now === undefined) return "delete";
    if (old === undefined) return "create";
    if (name === options.replace) return "replace";
    const properties = [...new Set([...Object.keys(old.inputs), ...Object.keys(now.inputs)])];
    const sourcesOf = (property: string) => (now.madeFrom[property] ?? []).map(fateOf);
    const isRenewed = (property: string) =>
      sourcesOf(property).some((fate) => fate === "create" || fate === "replace") && replaces(now.type, property);
    // An id stays, and is known.
    const isId = (property: string, source: string) =>
      JSON.stringify(now.inputs[property]).includes(JSON.stringify(`${source}-id`));
    const isUnknown = (property: string) =>
      options.isPreview &&
      (now.madeFrom[property] ?? []).some(
        (source) => fateOf(source) === "update" && isStep(news.get(source)) && !isId(property, source),
      );
    const changed = properties.filter(
      (property) =>
        !isDeepStrictEqual(old.inputs[property], now.inputs[property]) || isRenewed(property) || isUnknown(property),
    );
    if (changed.some((property) => replaces(now.type, property))) return "replace";
    return changed.length > 0 ? "update" : "same";
  };
  const fateOf = (name: string): Fate => {
    const fate = fates.get(name) ?? judge(name);
    fates.set(name, fate);
    return fate;
  };
  [...olds.keys(), ...news.keys()].forEach(fateOf);
  return fates;
}

/** The resources by what is done to them, as a row has them. */
function listed(fates: ReadonlyMap<string, Fate>): Expected {
  const of = (fate: Fate) => [...fates].flatMap(([name, each]) => (each === fate ? [name] : [])).sort();
  return { create: of("create"), replace: of("replace"), update: of("update"), delete: of("delete") };
}

/** The configuration that a row begins with. */
function configurationBefore({ from }: Row): Configuration {
  const config = configurationOf("dev");
  return from === undefined ? config : from(config);
}

/** The program before and after what a row does. */
async function runsOf(row: Row): Promise<[StackRun, StackRun]> {
  const { action } = row;
  const config = configurationBefore(row);
  const before = await runStack("dev", { ...config });
  if ("file" in action) texts.set(path.resolve(action.file), action.edit(fs.readFileSync(action.file, "utf8")));
  return [before, await runStack("dev", { ...("settings" in action ? action.settings(config) : config) })];
}

test.each(rows.map((row) => [row.name, row] as const))("%s: exactly what the table says", async (_, row) => {
  const [before, after] = await runsOf(row);
  const replace = "replace" in row.action ? row.action.replace : undefined;
  const { expected, previewOnly = [] } = row;
  expect(listed(changes(before, after, { replace, isPreview: false }))).toEqual(expected);
  expect(listed(changes(before, after, { replace, isPreview: true }))).toEqual({
    ...expected,
    update: [...expected.update, ...previewOnly].sort(),
  });
});

/** What the parts of a deployment are called by, in the order in which they are made. */
const course = ["preflight", "spark", "image", "model", "ray", "fabric", "server", "benchmark"];

/**
 * Names as patterns, where one stands for several of them and for nothing else: for all of a part, of a node, or the same of
 * every node.
 *
 * @param all every resource of the graphs
 */
function patterns(names: readonly string[], all: readonly string[]): string[] {
  const matching = (pattern: string) => {
    const [start = "", end = ""] = pattern.split("*");
    return all.filter((name) => name.startsWith(start) && name.endsWith(end));
  };
  const starts = (name: string) => [...name.matchAll(/-/g)].map(({ index }) => `${name.slice(0, index)}-*`);
  const ends = (name: string) => (/(?<=^spark-\d+)-.*|-spark-\d+$/.exec(name) ?? []).map((end) => `*${end}`);
  const candidates = names
    .flatMap((name) => [...starts(name), ...ends(name)])
    .filter((pattern) => matching(pattern).every((name) => names.includes(name)));
  const found: string[] = [];
  let left = [...names];
  const gain = (pattern: string) => matching(pattern).filter((name) => left.includes(name)).length;
  for (;;) {
    // Of those that stand for the same the longest says most.
    const [best] = candidates.sort((a, b) => gain(b) - gain(a) || b.length - a.length);
    if (best === undefined || gain(best) < 2) break;
    found.push(best);
    left = left.filter((name) => !matching(best).includes(name));
  }
  const place = (pattern: string) => course.findIndex((part) => pattern.startsWith(part));
  return [...found, ...left].sort((a, b) => place(a) - place(b));
}

/** A row of the document. */
async function documented(row: Row): Promise<string> {
  const { name, expected } = row;
  const before = partsOf(await runStack("dev", { ...configurationBefore(row) }));
  const all = [...new Set([...before.keys(), ...expected.create])];
  const cells = [expected.create, expected.replace, expected.update, expected.delete].map((names) =>
    patterns(names, all)
      .map((pattern) => `\`${pattern}\``)
      .join(", "),
  );
  return `| ${[name, ...cells].join(" | ")} |`;
}

async function document(): Promise<string> {
  const lines: string[] = [];
  // One after the other: of Pulumi's runtime there is one.
  for (const row of rows) lines.push(await documented(row));
  const onlyPreviewed = rows.flatMap(({ name, previewOnly = [] }) =>
    previewOnly.length === 0 ? [] : [`- ${name}: ${previewOnly.map((step) => `\`${step}\``).join(", ")}`],
  );
  return `# What changes when

What the next \`pulumi up\` does to each resource when one thing is changed, for the two Sparks of \`Pulumi.dev.yaml\`
(\`spark-1\` is the head). What a row does not name is left alone. Made from \`test/changes.ts\` by \`npm run golden\`;
\`test/unit/changes.test.ts\` holds it against the program. \`*\` stands for any part of a name.

- **Replaced**: a container is stopped and made anew, a step runs again.
- **Updated in place**: nothing restarts. A step tells the result that it remembers again, and does no work
  ([architecture.md](architecture.md)), unless its arguments are others: then it runs, and does only what is still to be
  done. For another \`user\` nothing is remembered yet, so the steps on that node run too. \`preflight-run\` looks at the
  nodes again, read-only, since a setting that it judges by has changed. \`fabric-all-reduce\` judges again what it
  measured, and measures only when no server runs or Ray's container on the head was started since. \`*-docker\` is the
  way to a node's Docker.

<!-- prettier-ignore-start -->
| what is changed | created | replaced (restarted, or run again) | updated in place | gone |
| --- | --- | --- | --- | --- |
${lines.join("\n")}
<!-- prettier-ignore-end -->

\`pulumi preview\` shows the same, and as updated in place also what is made from what a step will print:

${onlyPreviewed.join("\n")}

## Another API key

\`pulumi up --replace '**server-api-key'\` makes a new one and restarts the server with it, as the row above says. The old
one is refused from then on; \`pulumi stack output apiKey --show-secrets\` tells the new one.
`;
}

test("docs/changes.md is made from these rows", async () => {
  await expect(await document()).toMatchFileSnapshot("../../docs/changes.md");
});

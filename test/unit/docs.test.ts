import * as fs from "node:fs";
import { expect, test } from "vitest";
import { codes } from "../../components/preflight/codes";
import { type Description, description } from "../../components/problems";

/** Rows of the reference: key, default, description. */
function rows(type: Description, key: string): string[] {
  if (type.items?.properties !== undefined) return [row(key, type), ...rows(type.items, `${key}[]`)];
  if (type.properties === undefined) return [row(key, type)];
  return Object.entries(type.properties).flatMap(([name, inner]) => rows(inner, key === "" ? name : `${key}.${name}`));
}

function row(key: string, { default: value, description: text, example }: Description): string {
  const shown = value === undefined ? "" : `\`${JSON.stringify(value)}\``;
  return `| \`${key}\` | ${text ?? ""} | ${shown} | ${example === undefined ? "" : `\`${example}\``} |`;
}

function reference(): string {
  return `# Configuration

Every key of a stack, without the project's prefix \`dgx-spark-serving:\`. Made from \`components/schema.ts\` by
\`npm run golden\`; what relates keys to each other is checked in \`components/relations.ts\`.
A key without a default must be set, unless its description says what happens otherwise.

| key | what | default | example |
| --- | --- | --- | --- |
${rows(description, "").join("\n")}
| \`huggingFaceToken\` | Secret. Handed to the engine, and to the download from a hub, as \`HF_TOKEN\`; without it the engine is kept offline. Set it with \`pulumi config set --secret\`. | | |
| \`registryPassword\` | Secret. Password or token of \`registry.username\`. It stays in memory on the head, for as long as the pull takes. | | |
`;
}

test("docs/configuration.md is made from the schema", async () => {
  await expect(reference()).toMatchFileSnapshot("../../docs/configuration.md");
});

test("every key has a description", () => {
  expect(rows(description, "").filter((line) => /^\| `[^`]+` \| {2}\|/.test(line))).toEqual([]);
});

/** The cells of a table in a section of docs/troubleshooting.md, without its header. */
function troubleshooting(section: string): string[][] {
  const document = fs.readFileSync("docs/troubleshooting.md", "utf8");
  const text = new RegExp(`^## ${section}\\n(.*?)(?=^## |(?![^]))`, "ms").exec(document)?.[1] ?? "";
  return text
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) =>
      line
        .slice(1, -1)
        .split(" |")
        .map((cell) => cell.trim()),
    );
}

test("docs/troubleshooting.md explains every code of preflight, and no other, as it does", () => {
  expect(troubleshooting("What preflight finds")).toEqual(
    Object.entries(codes).map(([code, { severity, meaning, cause, cure }]) => [
      `\`${code}\``,
      severity,
      meaning,
      cause,
      cure,
    ]),
  );
});

test("docs/troubleshooting.md explains every failure signature of the gates, and no other, as they do", () => {
  const table = JSON.parse(fs.readFileSync("scripts/remote/signatures.json", "utf8")) as Record<
    "code" | "seen" | "cause" | "cure",
    string
  >[];
  // What the log fills in is left open.
  const open = (text: string) => text.replace(/\{\d\}/g, "…");
  expect(troubleshooting("What the gates recognise")).toEqual(
    table.map(({ code, seen, cause, cure }) => [`\`${code}\``, `\`${seen}\``, open(cause), open(cure)]),
  );
});

test("every file that a document links to is there", () => {
  const documents = ["README.md", "CHANGELOG.md", ...fs.readdirSync("docs").map((name) => `docs/${name}`)].filter(
    (name) => name.endsWith(".md"),
  );
  const broken = documents.flatMap((document) => {
    const folder = document.includes("/") ? "docs/" : "";
    const links = [...fs.readFileSync(document, "utf8").matchAll(/\]\((?!https?:|#)([^)#]+)/g)].map(
      (match) => match[1] ?? "",
    );
    return links.filter((link) => !fs.existsSync(folder + link)).map((link) => `${document}: ${link}`);
  });
  expect(broken).toEqual([]);
});

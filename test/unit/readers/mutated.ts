import { readFileSync, readdirSync } from "node:fs";
import fc from "fast-check";

const folderOf = (name: string) => `${__dirname}/../../fixtures/${name}`;

/** The files of one fixture folder, by name. */
export function fixturesOf(folder: string): Record<string, string> {
  return Object.fromEntries(
    readdirSync(folderOf(folder)).map((file) => [file, readFileSync(`${folderOf(folder)}/${file}`, "utf8")]),
  );
}

const place = fc.nat({ max: 5000 });

/** Arbitrary text, and the given texts with lines dropped, doubled or swapped, cut, with other bytes, with CRLF. */
export function mutated(texts: readonly string[]): fc.Arbitrary<string> {
  const onLines = (change: (lines: string[], at: number) => void) =>
    place.map((n) => (text: string) => {
      const lines = text.split("\n");
      change(lines, n % lines.length);
      return lines.join("\n");
    });
  const byte = fc.oneof(
    fc.constantFrom(...Array.from("0129azAZ .:/-_@<>[]()\t\n\"'&*!|,")),
    fc.string({ unit: "binary" }),
  );
  const change = fc.oneof(
    onLines((lines, at) => lines.splice(at, 1)),
    onLines((lines, at) => lines.splice(at, 0, lines[at] ?? "")),
    onLines((lines, at) => lines.push(...lines.splice(at, 1))),
    place.map((n) => (text: string) => text.slice(0, n % (text.length + 1))),
    fc.tuple(place, byte).map(([n, other]) => (text: string) => {
      const at = n % (text.length + 1);
      return text.slice(0, at) + other + text.slice(at + 1);
    }),
    fc.constant((text: string) => text.replace(/\r?\n/g, "\r\n")),
  );
  const fixture = fc
    .tuple(fc.constantFrom(...texts), fc.array(change, { minLength: 1, maxLength: 6 }))
    .map(([text, changes]) => changes.reduce((changed, make) => make(changed), text));
  return fc.oneof(
    { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 200 }) },
    { weight: 4, arbitrary: fixture },
  );
}

/** What of a reader's result does not stand in the text: strings as they are, numbers digit for digit. */
export function invented(result: unknown, text: string): unknown[] {
  const numbers = new Set(Array.from(text.matchAll(/\d+(?:\.\d+)?/g), ([digits]) => Number(digits)));
  for (const [digits] of text.matchAll(/\d+/g)) numbers.add(Number(digits));
  const walk = (value: unknown): unknown[] => {
    if (typeof value === "string") return text.includes(value) ? [] : [value];
    if (typeof value === "number") return numbers.has(value) ? [] : [value];
    return typeof value === "object" && value !== null ? Object.values(value).flatMap(walk) : [];
  };
  return walk(result);
}

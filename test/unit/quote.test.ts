import { execFileSync } from "node:child_process";
import fc from "fast-check";
import { expect, test } from "vitest";
import { shellLine } from "../../components/quote";

/** The words that a shell makes of the line, byte for byte. */
function split(shell: string, line: string): string[] {
  return execFileSync(shell, ["-c", `for word in ${line}; do printf '%s\\0' "$word"; done`], { encoding: "utf8" })
    .split("\0")
    .slice(0, -1);
}

const anything = fc
  .string({ unit: "binary", maxLength: 12 })
  .filter((text) => !text.includes("\0") && Buffer.from(text).toString() === text);
// Among all characters those that mean something to a shell are too rare to be hit.
const telling = fc.string({
  unit: fc.constantFrom(...Array.from("'\"$`\\!~*?#&|;<>(){}[]=^%-\n\t aé")),
  maxLength: 12,
});
const words = fc.array(fc.oneof(anything, telling, telling), { minLength: 1, maxLength: 5 });

const readsBack = (shell: string, quote: (words: readonly string[]) => string) =>
  fc.check(
    fc.property(words, (some) => {
      expect(split(shell, quote(some))).toEqual(some);
    }),
    { numRuns: 150 },
  );

test.each(["bash", "dash"])("%s reads any words back byte for byte", (shell) => {
  expect(readsBack(shell, shellLine)).toMatchObject({ failed: false, counterexample: null });
});

test.each<[string, (word: string) => string]>([
  ["double quotes", (word) => `"${word}"`],
  ["single quotes without care for those inside", (word) => `'${word}'`],
  [
    "quotes only around blanks and quotes",
    (word) => (/[\s'"$`\\]/.test(word) || word === "" ? shellLine([word]) : word),
  ],
])("this test finds out a wrong way to quote: %s", (_, quote) => {
  expect(readsBack("bash", (some) => some.map(quote).join(" ")).failed).toBe(true);
});

test.each([
  ["", "''"],
  ["a b", "'a b'"],
  ["it's", `"it's"`],
  ["$HOME", "\\$HOME"],
  ["$(reboot)", "\\$\\(reboot\\)"],
  ["a\nb", "'a\nb'"],
  ['{"a b":"it\'s $HOME"}', `"{\\"a b\\":\\"it's \\$HOME\\"}"`],
])("%j is written as %s", (text, quoted) => {
  expect(shellLine([text])).toBe(quoted);
});

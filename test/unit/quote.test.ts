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

const word = fc
  .string({ unit: "binary", maxLength: 12 })
  .filter((text) => !text.includes("\0") && Buffer.from(text).toString() === text);

test.each(["bash", "dash"])("%s reads any words back byte for byte", (shell) => {
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 5 }), (words) => {
      expect(split(shell, shellLine(words))).toEqual(words);
    }),
    { numRuns: 200 },
  );
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

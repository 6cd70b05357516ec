import { quote } from "shell-quote";

/**
 * The one place where words become shell text.
 *
 * @param argv the words of one command, any text but NUL
 * @returns a line that a POSIX shell splits into exactly these words, expanding nothing
 */
export function shellLine(argv: readonly string[]): string {
  return quote(argv);
}

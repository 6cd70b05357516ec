import * as fs from "node:fs";
import * as path from "node:path";

const script = path.join(__dirname, "../scripts/engine/keep-running.sh");

/**
 * A program and its arguments under `keep-running.sh`, which bounds how often it is started. To be used with Docker's restart
 * policy `on-failure`.
 */
export function keptRunning(argv: readonly string[]): [string, ...string[]] {
  // The text is part of the container: what changes nothing in it must not make the container anew.
  const lines = fs.readFileSync(script, "utf8").split("\n");
  const text = lines.filter((line) => !/^\s*(#|$)/.test(line)).join("\n");
  return ["sh", "-c", text, "keep-running.sh", ...argv];
}

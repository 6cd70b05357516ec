import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";

/** `answer N`, for what an `ssh` does: answers so many lines as `probe.py` does, with scripts that have nothing to tell. */
const answer = `#!${process.execPath}
let left = Number(process.argv[2]);
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const output = { code: 0, stdout: '{"listening":null,"peers":{}}', stderr: "" };
  console.log(JSON.stringify(Object.fromEntries(Object.keys(JSON.parse(line)).map((name) => [name, output]))));
  if (--left === 0) process.exit();
});
`;

/** A line of what an `ssh` does: it says that it has logged in. */
export const loggedIn = `echo 'Authenticated to spark ([10.0.0.1]:22) using "publickey".' >&2`;

/**
 * Has something done with an `ssh` on PATH that does as it is told.
 *
 * @param does what it does, as lines of a shell, by the host that it is to reach; its folder is $at, and its arguments are $all
 * @param use gets that folder, in which every `ssh` leaves its process id: HOST.pid
 */
export async function withSsh<T>(does: Record<string, string>, use: (folder: string) => Promise<T>): Promise<T> {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ssh-"));
  const before = process.env["PATH"];
  try {
    const cases = Object.entries(does).map(([host, lines]) => `${host})\n${lines}\n;;`);
    const script = [
      ...["#!/bin/sh", `at=${folder}`, 'all="$*"', 'while [ "$1" != -- ]; do shift; done', 'echo $$ >"$at/$2.pid"'],
      ...['case "$2" in', ...cases, "esac", ""],
    ].join("\n");
    fs.writeFileSync(path.join(folder, "ssh"), script, { mode: 0o755 });
    fs.writeFileSync(path.join(folder, "answer"), answer, { mode: 0o755 });
    process.env["PATH"] = `${folder}:${before ?? ""}`;
    return await use(folder);
  } finally {
    process.env["PATH"] = before;
    fs.rmSync(folder, { recursive: true });
  }
}

/** The hosts whose `ssh` still runs. */
export function stillRunning(folder: string): string[] {
  const files = fs.readdirSync(folder).filter((name) => name.endsWith(".pid"));
  return files.filter((name) => isRunning(Number(fs.readFileSync(path.join(folder, name), "utf8"))));
}

/** One that has ended counts as such also while nobody has taken note of it. */
function isRunning(pid: number): boolean {
  const { stdout } = spawnSync("ps", ["-o", "stat=", "-p", String(pid)], { encoding: "utf8" });
  return /^[^Z]/.test(stdout);
}

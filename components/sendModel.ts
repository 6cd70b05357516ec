import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { z } from "zod";
import { sshOptions } from "./connection";
import { urlHost } from "./ray";
import { nodeSchema, schema } from "./schema";
import { expandHome } from "./settings";

/** What the step hands over on stdin: the head, how to reach it, the folder here, and the one there. */
const orderSchema = z.object({ head: nodeSchema, ssh: schema.shape.ssh, folder: z.string(), path: z.string() });

const lineSeconds = 5;

/** A word of `--rsh` as rsync reads it: a quote within quotes is doubled, and nothing else means anything. */
function rshWord(word: string): string {
  return `'${word.replaceAll("'", "''")}'`;
}

/** The command line of rsync. What is there with the same size and time stays; all else comes whole, under another name first. */
export function rsyncArguments({ head, ssh, folder, path }: z.output<typeof orderSchema>): string[] {
  const rsh = ["ssh", ...sshOptions({ node: head, via: undefined }, ssh), "-p", String(head.port)];
  return [
    ...[
      "--recursive",
      "--times",
      "--omit-dir-times",
      "--copy-links",
      "--chmod=D755,F644",
      "--whole-file",
      "--exclude=.*",
    ],
    // A path's blanks and quotes stay its own, and folders above it are made.
    ...["--protect-args", "--mkpath", "--timeout=120", "--info=progress2,stats2", "--outbuf=L"],
    `--rsh=${rsh.map(rshWord).join(" ")}`,
    "--",
    `${expandHome(folder)}/`,
    `${head.user}@${urlHost(head.host)}:${path}/`,
  ];
}

/** Runs it, with a line now and then; what it moved, as JSON. */
async function main(): Promise<number> {
  const order = orderSchema.parse(JSON.parse(fs.readFileSync(0, "utf8")));
  const began = Date.now();
  // In numbers that are read here.
  const child = spawn("env", ["LC_ALL=C", "rsync", ...rsyncArguments(order)], { stdio: ["ignore", "pipe", "pipe"] });
  let told = began;
  let last = "";
  let said = "";
  child.stdout.on("data", (data: Buffer) => {
    last = (last + data.toString()).slice(-4000);
    if (Date.now() - told < lineSeconds * 1000) return;
    // "  1,234,567  12%  110.00MB/s    0:00:07": bytes, share, rate, time left.
    const [line] = last.match(/[\d,]+ +\d+% +\S+ +[\d:]+(?=[^]*$)/g)?.slice(-1) ?? [];
    if (line === undefined) return;
    told = Date.now();
    process.stderr.write(`model to ${order.head.name}: ${line.replace(/ +/g, " ")}\n`);
  });
  child.stderr.on("data", (data: Buffer) => (said = (said + data.toString()).slice(-4000)));
  const code = await new Promise<number | null>((resolve) => child.on("close", resolve));
  if (code !== 0) {
    const why = code === 127 ? "rsync is not on this machine" : `rsync ended with ${String(code)}`;
    const { folder, head, path } = order;
    process.stderr.write(`${said}model.source.folder ${folder} can't be sent to ${head.name}, ${path}: ${why}\n`);
    return 1;
  }
  const [, bytes = "0"] = /^Total transferred file size: ([\d,]+) bytes$/m.exec(last) ?? [];
  const moved = Number(bytes.replaceAll(",", ""));
  process.stdout.write(JSON.stringify({ changed: moved > 0, bytes: moved, seconds: (Date.now() - began) / 1000 }));
  return 0;
}

if (require.main === module) void main().then((code) => (process.exitCode = code));

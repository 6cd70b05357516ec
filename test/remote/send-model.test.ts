import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Sandbox } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
  // The head is this machine: of ssh's words all are kept, and those after the host are run by a shell, as sshd does.
  box.write(
    "bin/ssh",
    `#!/usr/bin/env python3
import json, os, sys
json.dump(sys.argv[1:], open("${box.home}/ssh.json", "w"))
words = sys.argv[sys.argv.index("-l") + 3 :]
os.execvp("sh", ["sh", "-c", " ".join(words)])
`,
    0o755,
  );
});
afterEach(() => {
  box.remove();
});

const hostKey = "ssh-ed25519 AAAAC3Nza";
const order = (folder: string, to: string) => ({
  head: {
    name: "spark-1",
    host: "10.1.230.180",
    port: 2222,
    user: "aurora",
    hostKey,
    fabric: { interface: "enp1s0f0np0", address: "192.168.200.12" },
  },
  ssh: { privateKeyPath: "~/.ssh/it's a key" },
  folder,
  path: to,
});

const send = (folder: string, to: string) => {
  const input = box.write("order.json", order(folder, to));
  const tsx = path.resolve("node_modules/tsx/dist/cjs/index.cjs");
  const program = path.resolve("components/sendModel.ts");
  return box.exec(["sh", "-c", '"$0" --require "$1" "$2" <"$3"', process.execPath, tsx, program, input]);
};

test("a folder goes to the head once, and what is hidden stays", async () => {
  box.write("a model/config.json", "{}");
  box.write("a model/deep/it's.safetensors", "weights");
  box.write("a model/.cache/x", "");
  const to = path.join(box.home, "head's models/it's $HOME");
  const { code, stdout, stderr } = await send("~/a model", to);
  expect([code, stderr]).toEqual([0, ""]);
  expect(JSON.parse(stdout)).toEqual({ changed: true, bytes: 9, seconds: expect.any(Number) as number });
  expect(fs.readdirSync(to, { recursive: true }).sort()).toEqual(["config.json", "deep", "deep/it's.safetensors"]);
  expect(fs.readFileSync(path.join(to, "deep/it's.safetensors"), "utf8")).toBe("weights");
  const words = JSON.parse(box.read("ssh.json")) as string[];
  expect(words.slice(0, 4)).toEqual(["-F", "none", "-i", "~/.ssh/it's a key"]);
  expect(words).toContain(`KnownHostsCommand=/bin/echo %H ${hostKey}`);
  const at = words.indexOf("-p");
  expect(words.slice(at, at + 5)).toEqual(["-p", "2222", "-l", "aurora", "10.1.230.180"]);
  expect(JSON.parse((await send("~/a model", to)).stdout)).toMatchObject({ changed: false, bytes: 0 });
});

test("a folder that was there keeps its permissions and time: it may be somebody else's", async () => {
  box.write("a model/config.json", "{}");
  const to = path.join(box.home, "m");
  fs.mkdirSync(to);
  fs.chmodSync(to, 0o2775);
  const { code, stderr } = await send("~/a model", to);
  expect([code, stderr]).toEqual([0, ""]);
  const { mode, mtimeMs } = fs.statSync(to);
  expect(mode & 0o7777).toBe(0o2775);
  expect(mtimeMs).not.toBe(fs.statSync(path.join(box.home, "a model")).mtimeMs);
  expect(fs.statSync(path.join(to, "config.json")).mode & 0o777).toBe(0o644);
});

test("a folder that is not there is told, with where it was to go", async () => {
  const { code, stdout, stderr } = await send("/nowhere/at all", "/models/m");
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain('"/nowhere/at all" failed: No such file or directory');
  expect(stderr).toMatch(
    /^model\.source\.folder \/nowhere\/at all can't be sent to spark-1, \/models\/m: rsync ended with 23$/m,
  );
});

test("a machine without rsync is told so", async () => {
  for (const tool of ["sh", "env"]) fs.symlinkSync(`/bin/${tool}`, path.join(box.home, "bin", tool));
  const input = box.write("order.json", order("~/m", "/m"));
  const tsx = path.resolve("node_modules/tsx/dist/cjs/index.cjs");
  const argv = ["/bin/sh", "-c", '"$0" --require "$1" "$2" <"$3"', process.execPath, tsx];
  const { code, stderr } = await box.exec([...argv, path.resolve("components/sendModel.ts"), input], {
    PATH: path.join(box.home, "bin"),
  });
  expect([code, stderr.trim().split("\n").at(-1)]).toEqual([
    1,
    "model.source.folder ~/m can't be sent to spark-1, /m: rsync is not on this machine",
  ]);
});

import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { processes, Sandbox, until } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
  fs.symlinkSync(path.resolve("test/remote/ssh"), path.join(box.home, "bin/ssh"));
  box.write("keep/model_ed25519", "a key");
});
afterEach(() => {
  box.remove();
});

const key = `ssh-ed25519 ${"A".repeat(68)}`;
const hop = (name: string) => ({ name, user: "aurora", address: name, port: 22, hostKey: "ssh-ed25519 AAAA" });
/** A folder of a node other than the head. The model's is the same on all, but these homes are not. */
const at = (node: string, file: string) => path.join(box.home, "nodes", node, file);
const read = (node: string, file: string) => fs.readFileSync(at(node, file), "utf8");

/** Makes the nodes of a chain, each ready to receive. */
async function chain(...names: string[]): Promise<void> {
  for (const [index, name] of names.entries()) {
    fs.mkdirSync(at(name, "bin"), { recursive: true });
    box.write(`nodes/${name}/keep/model_ed25519`, "a key");
    const next = names[index + 1];
    const config = JSON.stringify({
      node: name,
      path: at(name, "a model"),
      next: next === undefined ? null : hop(next),
    });
    const ended = await box.run("model_receiver.py", ["add", at(name, "keep"), "192.168.200.12", key, config]);
    expect(ended).toMatchObject({ code: 0, stdout: '{"changed": true}\n' });
  }
}

const files: Record<string, string> = {
  "config.json": "{}",
  "model-00001-of-00002.safetensors": "a".repeat(300_000),
  "model-00002-of-00002.safetensors": "b".repeat(200_000),
  "a folder/it's $HOME.txt": "quoted\n",
};
const total = Object.values(files).reduce((sum, text) => sum + text.length, 0);

async function model(contents: Record<string, string> = files) {
  for (const [name, text] of Object.entries(contents)) box.write(`a model/${name}`, text);
  // What tools keep there is no part of it.
  box.write("a model/.cache/huggingface/x.lock", "");
  return box.run("list_model.py", [path.join(box.home, "a model"), "keep"]);
}

const copy = (...names: string[]) =>
  box.run("copy_model.py", ["spark-1", path.join(box.home, "a model"), "keep", JSON.stringify(names.map(hop))], {
    FAKE_NODES: path.join(box.home, "nodes"),
  });

/** The head sends by these lines of shell. The nodes find the same program where they have none of their own, and receive as ever. */
const sendBy = (lines: string) =>
  box.write("bin/rsync", `#!/bin/sh\ncase "$*" in *--server*) exec /usr/bin/rsync "$@" ;; esac\n${lines}\n`, 0o755);

/** Sends config.json with another byte, as memory would that has another bit. */
function wrongly(): string {
  const write = (byte: string) =>
    `printf '${byte}' | dd of='${path.join(box.home, "a model/config.json")}' conv=notrunc 2>/dev/null`;
  return [write("x"), '/usr/bin/rsync "$@"', write("{")].join("\n");
}

/** Bytes that each node got, by name. */
function bytesOf(stdout: string): Record<string, number> {
  const { nodes } = JSON.parse(stdout) as { nodes: Record<string, { bytes: number }> };
  return Object.fromEntries(Object.entries(nodes).map(([name, { bytes }]) => [name, bytes]));
}

const holds = (node: string) =>
  Object.fromEntries(Object.keys(files).map((name) => [name, read(node, `a model/${name}`)]));

test("a model is read once, and goes down the chain once", async () => {
  const listed = JSON.parse((await model()).stdout) as Record<string, unknown>;
  expect(listed).toEqual({
    changed: false,
    files: 4,
    bytes: total,
    digest: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
  });
  await chain("spark-2", "spark-3", "spark-4");
  const first = await copy("spark-2", "spark-3", "spark-4");
  expect(first.code, first.stderr).toBe(0);
  expect(bytesOf(first.stdout)).toEqual({ "spark-2": total, "spark-3": total, "spark-4": total });
  for (const node of ["spark-2", "spark-3", "spark-4"]) {
    expect(holds(node)).toEqual(files);
    expect(fs.readdirSync(at(node, "a model"))).not.toContain(".cache");
    expect(fs.statSync(at(node, "a model/config.json")).mode & 0o777).toBe(0o644);
    fs.rmSync(at(node, "commands.log"));
  }
  const second = await copy("spark-2", "spark-3", "spark-4");
  expect(JSON.parse(second.stdout)).toEqual({
    changed: false,
    nodes: {
      "spark-2": { bytes: 0, seconds: 0 },
      "spark-3": { bytes: 0, seconds: 0 },
      "spark-4": { bytes: 0, seconds: 0 },
    },
  });
  for (const node of ["spark-2", "spark-3", "spark-4"]) expect(read(node, "commands.log")).toBe("model\n");
});

test("names are names, whatever is in them", async () => {
  const names = [
    "#1",
    ";2",
    " a ",
    "new\nline",
    "ünï",
    "-dash",
    "a\\b",
    "$(touch x)",
    "*",
    "[a]",
    "+ x",
    "a/./b",
    "it's",
  ];
  const odd = Object.fromEntries(names.map((name) => [path.normalize(name), `of ${name}`]));
  await model(odd);
  await chain("spark-2", "spark-3");
  const { code, stderr } = await copy("spark-2", "spark-3");
  expect(code, stderr).toBe(0);
  for (const [name, text] of Object.entries(odd)) expect(read("spark-3", `a model/${name}`)).toBe(text);
  expect(fs.readdirSync(at("spark-3", "a model"), { recursive: true })).toHaveLength(Object.keys(odd).length + 1);
});

test.each([
  [
    "changed in a byte, its size and time as they were",
    (file: string) => {
      const { atime, mtime } = fs.statSync(file);
      const bytes = fs.readFileSync(file);
      bytes[7] = 0;
      fs.writeFileSync(file, bytes);
      fs.utimesSync(file, atime, mtime);
    },
  ],
  [
    "cut short",
    (file: string) => {
      fs.truncateSync(file, 1000);
    },
  ],
  [
    "removed",
    (file: string) => {
      fs.rmSync(file);
    },
  ],
])("a file that was %s comes again, alone, with what an interrupted run left of it gone", async (_, harm) => {
  await model();
  await chain("spark-2", "spark-3");
  await copy("spark-2", "spark-3");
  const shard = "model-00002-of-00002.safetensors";
  harm(at("spark-3", `a model/${shard}`));
  const drafts = at("spark-3", "a model/.dgx-spark-serving-drafts");
  fs.mkdirSync(drafts);
  fs.writeFileSync(path.join(drafts, `${shard}.Ab3xYz`), "half");
  // A name like those that rsync gives.
  fs.writeFileSync(at("spark-3", `a model/.${shard}.backup`), "somebody's");
  expect(bytesOf((await copy("spark-2", "spark-3")).stdout)).toEqual({ "spark-2": 0, "spark-3": 200_000 });
  expect(holds("spark-3")).toEqual(files);
  expect(fs.readdirSync(at("spark-3", "a model")).filter((name) => name.startsWith("."))).toEqual([`.${shard}.backup`]);
});

test("what is right on a node already, wherever it came from, is not sent", async () => {
  await model();
  await chain("spark-2");
  fs.mkdirSync(at("spark-2", "blobs"));
  fs.mkdirSync(at("spark-2", "a model"));
  fs.writeFileSync(at("spark-2", "blobs/1"), files["model-00001-of-00002.safetensors"] ?? "");
  fs.symlinkSync("../blobs/1", at("spark-2", "a model/model-00001-of-00002.safetensors"));
  expect(bytesOf((await copy("spark-2")).stdout)).toEqual({ "spark-2": total - 300_000 });
  expect(fs.readlinkSync(at("spark-2", "a model/model-00001-of-00002.safetensors"))).toBe("../blobs/1");
});

test("of another model the former one's files go, and nobody else's", async () => {
  await model();
  await chain("spark-2");
  await copy("spark-2");
  fs.writeFileSync(at("spark-2", "a model/notes.txt"), "mine");
  fs.writeFileSync(at("spark-2", "a model/config.json"), "edited by hand");
  fs.rmSync(path.join(box.home, "a model"), { recursive: true });
  await model({ "model.gguf": "c" });
  expect(bytesOf((await copy("spark-2")).stdout)).toEqual({ "spark-2": 1 });
  expect(fs.readdirSync(at("spark-2", "a model"), { recursive: true }).sort()).toEqual([
    "a folder",
    "config.json",
    "model.gguf",
    "notes.txt",
  ]);
});

test("in another folder nothing is removed that the former model had", async () => {
  await model();
  await chain("spark-2");
  await copy("spark-2");
  const another = JSON.stringify({ node: "spark-2", path: at("spark-2", "another"), next: null });
  await box.run("model_receiver.py", ["add", at("spark-2", "keep"), "192.168.200.12", key, another]);
  fs.mkdirSync(at("spark-2", "another"));
  // The very file, under the same name.
  fs.linkSync(at("spark-2", "a model/config.json"), at("spark-2", "another/config.json"));
  await copy("spark-2");
  fs.rmSync(path.join(box.home, "a model"), { recursive: true });
  await model({ "model.gguf": "c" });
  await chain("spark-2");
  expect((await copy("spark-2")).code).toBe(0);
  expect(holds("spark-2")).toEqual(files);
});

test("what changed since it was brought is told, without reading it", async () => {
  await model();
  await chain("spark-2");
  const brought = async () =>
    JSON.parse(
      (await box.run("brought_model.py", [at("spark-2", "a model"), at("spark-2", "keep")])).stdout,
    ) as unknown;
  expect(await brought()).toEqual({ rsync: true, changed: [] });
  await copy("spark-2");
  expect(await brought()).toEqual({ rsync: true, changed: [] });
  fs.appendFileSync(at("spark-2", "a model/config.json"), " ");
  fs.rmSync(at("spark-2", "a model/model-00001-of-00002.safetensors"));
  // Its writer was killed in the middle of a line.
  fs.appendFileSync(at("spark-2", "keep/model-seen.jsonl"), '["config.js');
  expect(await brought()).toEqual({ rsync: true, changed: ["config.json", "model-00001-of-00002.safetensors"] });
  // What is known is of that folder, and of no other.
  const other = await box.run("brought_model.py", [at("spark-2", "another"), at("spark-2", "keep")]);
  expect(JSON.parse(other.stdout)).toEqual({ rsync: true, changed: [] });
});

test.each(["", "sh", "rsync --server . /", "model; id", "rsync --server --daemon . x"])(
  "the key of the node before may not run %j",
  async (command) => {
    await chain("spark-2");
    const environment = { SSH_ORIGINAL_COMMAND: command };
    expect(await box.exec(["bash", at("spark-2", "keep/receive-model.sh")], environment)).toEqual({
      code: 1,
      stdout: "",
      stderr: "this key may only copy a model\n",
    });
  },
);

test("a model that changed on the head since it was read is not sent", async () => {
  await model();
  await chain("spark-2");
  box.write("a model/config.json", "[]");
  expect(await copy("spark-2")).toEqual({
    code: 1,
    stdout: "",
    stderr: `model.path ${path.join(box.home, "a model")}: changed since it was read: config.json: pulumi up --replace '**model-*'\n`,
  });
  expect(fs.existsSync(at("spark-2", "a model"))).toBe(false);
});

test("a file that is gone on the head since it was read is named, with what to do", async () => {
  await model();
  await chain("spark-2");
  fs.rmSync(path.join(box.home, "a model/config.json"));
  const { code, stderr } = await copy("spark-2");
  expect([code, stderr]).toEqual([
    1,
    `model.path ${path.join(box.home, "a model")}: changed since it was read: config.json: pulumi up --replace '**model-*'\n`,
  ]);
});

test("a folder that is not there is no model without files", async () => {
  const folder = path.join(box.home, "nowhere");
  const { code, stdout, stderr } = await box.run("list_model.py", [folder, "keep"]);
  expect([code, stdout, stderr]).toEqual([
    1,
    "",
    `model.path ${folder}: [Errno 2] No such file or directory: '${folder}'\n`,
  ]);
  expect(fs.existsSync(path.join(box.home, "keep/model.json"))).toBe(false);
});

test("links are followed, as rsync does; what is no file is no part of a model", async () => {
  const folder = path.join(box.home, "a model");
  const elsewhere = path.join(box.home, "elsewhere");
  fs.mkdirSync(path.join(folder, "sub"), { recursive: true });
  box.write("elsewhere/blob", "of a cache");
  fs.symlinkSync(elsewhere, path.join(folder, "linked"));
  fs.symlinkSync("../../elsewhere/blob", path.join(folder, "sub/weights"));
  fs.symlinkSync("..", path.join(folder, "sub/back"));
  fs.symlinkSync(folder, path.join(elsewhere, "round"));
  fs.symlinkSync("nowhere", path.join(folder, "broken"));
  // Reading it would wait for a writer for ever.
  execFileSync("mkfifo", [path.join(folder, "pipe")]);
  expect(JSON.parse((await model({ "config.json": "{}" })).stdout)).toMatchObject({ files: 3, bytes: 22 });
  await chain("spark-2");
  const { code, stderr } = await copy("spark-2");
  expect(code, stderr).toBe(0);
  expect(fs.readdirSync(at("spark-2", "a model"), { recursive: true }).sort()).toEqual(
    ["config.json", "linked", "linked/blob", "sub", "sub/weights"].sort(),
  );
});

test("how far it is, is told every five seconds; the rate is of what came after the first bytes", async () => {
  const looks = [
    ...[
      [1, 1000],
      [6, 1000],
      [30, 1000],
      [40, 5_001_000],
      [42, 5_001_000],
    ],
    ...[
      [45, 15_001_000],
      [49, 15_001_000],
      [50, 25_001_000],
      [58, 500],
      [70, 50_001_000],
      [75, 50_001_000],
    ],
  ];
  const { stderr } = await box.exec([
    "python3",
    "-c",
    [
      "import json, sys",
      "sys.path.insert(0, sys.argv[1])",
      "import model_files",
      "clock = [0]",
      "model_files.time.monotonic = lambda: clock[0]",
      'progress = model_files.Progress("model", 50_001_000, 1000)',
      "for clock[0], done in json.loads(sys.argv[2]): progress.at(done)",
    ].join("\n"),
    path.resolve("scripts/remote"),
    JSON.stringify(looks),
  ]);
  expect(stderr.trimEnd().split("\n")).toEqual([
    "model: 1.0 kB of 50.0 MB",
    "model: 1.0 kB of 50.0 MB",
    "model: 5.0 MB of 50.0 MB",
    "model: 15.0 MB of 50.0 MB, 2.0 MB/s, 18 s left",
    "model: 25.0 MB of 50.0 MB, 2.0 MB/s, 12 s left",
    "model: 500.0 B of 50.0 MB",
    "model: 50.0 MB of 50.0 MB, 1.5 MB/s, 0 s left",
    "model: 50.0 MB of 50.0 MB, 1.3 MB/s, 0 s left",
  ]);
});

test("a node that is not to be reached is named, with the one before it", async () => {
  await model();
  await chain("spark-2", "spark-3");
  box.write("nodes/spark-3/refused", "");
  const { code, stderr } = await copy("spark-2", "spark-3");
  expect(code).toBe(1);
  expect(stderr).toContain("spark-2 has no connection to spark-3 over the fabric (any more): aurora@spark-3:22.");
});

test("a node without rsync is named, with what to install", async () => {
  await model();
  await chain("spark-2", "spark-3");
  for (const tool of ["python3", "bash", "dirname"]) {
    fs.symlinkSync(`/usr/bin/${tool}`, at("spark-3", `bin/${tool}`));
  }
  box.write("nodes/spark-3/poor", "");
  const { code, stderr } = await copy("spark-2", "spark-3");
  expect([code, stderr.trim().split("\n").at(-1)]).toEqual([1, "spark-3: rsync is missing: sudo apt install rsync"]);
});

test("a disk that is too small is named before anything is sent, with numbers", async () => {
  await model();
  await chain("spark-2", "spark-3");
  // As if the disk had half a gigabyte left.
  const receiver = at("spark-3", "keep/receiver/receive_model.py");
  const small = "shutil.disk_usage = lambda _: type('', (), {'free': 5 * 10**8})\n";
  fs.writeFileSync(receiver, fs.readFileSync(receiver, "utf8").replace("speaking =", `${small}speaking =`));
  const { code, stderr } = await copy("spark-2", "spark-3");
  expect([code, stderr.trim().split("\n").at(-1)]).toEqual([
    1,
    `spark-3: the disk of ${at("spark-3", "a model")} has 500.0 MB free, 1.0 GB are needed for the model (1.0 GB of it are left free): make room`,
  ]);
  expect(fs.readdirSync(at("spark-3", "a model"))).toEqual([]);
});

test.each([
  ["once", "comes again", 0],
  ["always", "is named", 1],
])("a file that arrives wrong %s %s", async (times, _, expected) => {
  await model();
  await chain("spark-2");
  const count = box.write("count", "");
  sendBy(`[ ${times} = once ] && [ -s ${count} ] && exec /usr/bin/rsync "$@"\necho >>${count}\n${wrongly()}`);
  const { code, stderr } = await copy("spark-2");
  expect(code).toBe(expected);
  if (code === 0) expect(holds("spark-2")).toEqual(files);
  else
    expect(stderr).toContain(
      "config.json arrived on spark-2 with other bytes than it has on spark-1, or not at all, twice",
    );
});

test("a file that came wrong and then right is right, whichever of the two copies ends first", async () => {
  await model();
  await chain("spark-2", "spark-3");
  // It still sends when both have ended.
  const slow = 'case "$*" in *--server*) ;; *) sleep 4 ;; esac';
  box.write("nodes/spark-2/bin/rsync", `#!/bin/sh\n${slow}\nexec /usr/bin/rsync "$@"\n`, 0o755);
  const count = box.write("count", "");
  // At last as if it had a larger file to send yet.
  sendBy(`if [ -s ${count} ]; then sleep 0.5; exec /usr/bin/rsync "$@"; fi\necho >>${count}\n${wrongly()}\nsleep 2`);
  const { code, stderr } = await copy("spark-2", "spark-3");
  expect(code, stderr).toBe(0);
  expect(holds("spark-3")).toEqual(files);
});

test("a node whose shell talks is named, and nothing waits for it", async () => {
  await model();
  await chain("spark-2");
  const receiver = at("spark-2", "keep/receive-model.sh");
  fs.writeFileSync(receiver, `echo Welcome\n${fs.readFileSync(receiver, "utf8")}`);
  const { code, stderr } = await copy("spark-2");
  expect([code, stderr]).toEqual([1, expect.stringContaining('spark-2 says "Welcome"')]);
});

test("a name in no character set is a name", async () => {
  await model();
  const name = Buffer.from([0x66, 0xfc, 0x72]);
  const of = (folder: string) => Buffer.concat([Buffer.from(`${folder}/`), name]);
  fs.writeFileSync(of(path.join(box.home, "a model")), "latin");
  await model();
  await chain("spark-2", "spark-3");
  const { code, stderr } = await copy("spark-2", "spark-3");
  expect(code, stderr).toBe(0);
  expect(fs.readFileSync(of(at("spark-3", "a model")), "utf8")).toBe("latin");
});

test("a folder that was there keeps its permissions and time: it may be somebody else's", async () => {
  await model();
  await chain("spark-2");
  fs.mkdirSync(at("spark-2", "a model/a folder"), { recursive: true });
  for (const folder of ["a model", "a model/a folder"]) fs.chmodSync(at("spark-2", folder), 0o2775);
  const { code, stderr } = await copy("spark-2");
  expect(code, stderr).toBe(0);
  for (const folder of ["a model", "a model/a folder"]) {
    const { mode, mtimeMs } = fs.statSync(at("spark-2", folder));
    expect(mode & 0o7777).toBe(0o2775);
    expect(mtimeMs).not.toBe(fs.statSync(path.join(box.home, folder)).mtimeMs);
  }
});

test("a node that lacks nothing needs no room", async () => {
  await model();
  await chain("spark-2");
  await copy("spark-2");
  const receiver = at("spark-2", "keep/receiver/receive_model.py");
  const small = "shutil.disk_usage = lambda _: type('', (), {'free': 5 * 10**8})\n";
  fs.writeFileSync(receiver, fs.readFileSync(receiver, "utf8").replace("speaking =", `${small}speaking =`));
  const { code, stderr } = await copy("spark-2");
  expect(code, stderr).toBe(0);
});

test("a file that rsync leaves out is named, and nothing waits for it", async () => {
  await model();
  await chain("spark-2");
  sendBy('grep -zv config.json | /usr/bin/rsync "$@"');
  const { code, stderr } = await copy("spark-2");
  expect(code).toBe(1);
  expect(stderr).toContain(
    "config.json arrived on spark-2 with other bytes than it has on spark-1, or not at all, twice",
  );
});

test("killed in the middle, nothing is left running, and the next run ends what was begun", async () => {
  await model();
  await chain("spark-2", "spark-3");
  // Slow enough to be caught.
  box.write("bin/rsync", '#!/bin/sh\nexec /usr/bin/rsync --bwlimit=100 "$@"\n', 0o755);
  const child = copy("spark-2", "spark-3");
  const ours = () =>
    processes((id) => {
      try {
        return fs.readFileSync(`/proc/${id}/environ`, "utf8").includes(`FAKE_NODES=${box.home}`);
      } catch {
        return false;
      }
    });
  const shard = "model-00001-of-00002.safetensors";
  const drafts = at("spark-2", "a model/.dgx-spark-serving-drafts");
  const arriving = () =>
    fs.existsSync(drafts) ? fs.readdirSync(drafts).find((name) => name.includes(shard)) : undefined;
  await until(() => arriving() !== undefined && fs.statSync(path.join(drafts, arriving() ?? "")).size > 50_000);
  const copying = ours().find((id) => fs.readFileSync(`/proc/${id}/cmdline`, "utf8").includes("copy_model.py"));
  process.kill(Number(copying), "SIGKILL");
  await child;
  await until(() => ours().length === 0);
  expect(fs.readdirSync(at("spark-2", "a model/.dgx-spark-serving-partial"))).toEqual([shard]);
  sendBy('exec /usr/bin/rsync --stats "$@" >>stats.log');
  expect((await copy("spark-2", "spark-3")).code).toBe(0);
  for (const node of ["spark-2", "spark-3"]) {
    expect(holds(node)).toEqual(files);
    expect(fs.readdirSync(at(node, "a model")).filter((name) => name.startsWith("."))).toEqual([]);
  }
  // What had come of it did not come again.
  const [, matched = ""] = /^Matched data: ([\d,]+) bytes$/m.exec(box.read("stats.log")) ?? [];
  expect(Number(matched.replaceAll(",", ""))).toBeGreaterThan(50_000);
});

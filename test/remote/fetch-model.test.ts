import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { Hub } from "../support/hub";
import { processes, Sandbox, serve, until } from "./sandbox";

const requirements = path.resolve("scripts/virtual-sparks/image/requirements.txt");

const sha256 = (content: Buffer | string) => createHash("sha256").update(content).digest("hex");

/** A Python with the client that the lab's image has, in the cache of this machine. */
function clientPython(): string {
  const cache =
    process.env.DGX_SPARK_CACHE ??
    path.join(process.env.XDG_CACHE_HOME ?? `${os.homedir()}/.cache`, "dgx-spark-serving");
  const place = path.join(cache, `hub-client-${sha256(fs.readFileSync(requirements)).slice(0, 12)}`);
  if (!fs.existsSync(`${place}/ready`)) {
    execFileSync("/usr/bin/python3", ["-m", "venv", "--clear", place]);
    const options = ["--quiet", "--disable-pip-version-check", "--constraint", requirements];
    execFileSync(`${place}/bin/pip`, ["install", ...options, "huggingface_hub"]);
    fs.writeFileSync(`${place}/ready`, "");
  }
  return `${place}/bin/python3`;
}

const repository = "owner/tiny";
const token = "hf_aCanaryToken";
/** Bytes that are no other file's. */
const bytes = (count: number, seed: number) =>
  Buffer.from(Uint8Array.from({ length: count }, (_, at) => (at * 31 + (at >> 8) * 7 + seed) % 251));
const first = "model-00001-of-00002.safetensors";
const second = "model-00002-of-00002.safetensors";
const files = {
  ".gitattributes": Buffer.from("*.safetensors filter=lfs\n"),
  "config.json": Buffer.from('{"model_type": "tiny"}\n'),
  [first]: bytes(3_000_000, 1),
  [second]: bytes(2_000_000, 2),
  "original/params.json": Buffer.from("{}"),
  "tokenizer.json": bytes(200_000, 3),
};
const without = (all: Record<string, Buffer>, ...names: string[]) =>
  Object.fromEntries(Object.entries(all).filter(([name]) => !names.includes(name)));
const shown = without(files, ".gitattributes");
const total = Object.values(shown).reduce((sum, content) => sum + content.length, 0);
const sizes = Object.fromEntries(Object.entries(shown).map(([name, content]) => [name, content.length]));

let python: string;
let box: Sandbox;
let hub: Hub;
let endpoint: string;
let model: string;

beforeAll(() => {
  python = clientPython();
}, 300_000);
beforeEach(async () => {
  box = new Sandbox();
  fs.mkdirSync(`${box.home}/keep`);
  model = `${box.home}/models, all/"tiny" one`;
  box.write("docker-world/images.json", { image: { id: "sha256:1" } });
  // Waits take a fiftieth of their time, and are kept.
  box.write(
    "site/sitecustomize.py",
    `import time
sleep = time.sleep
def shorter(seconds):
    with open("${box.home}/waits.log", "a") as log:
        log.write(f"{seconds:g}\\n")
    sleep(seconds / 50)
time.sleep = shorter
`,
  );
  // An image that is kept from the hub for serving.
  box.write(
    "docker-world/python",
    `#!/bin/sh\nHF_HUB_OFFLINE=1 PYTHONPATH='${box.home}/site' exec '${python}' "$@"\n`,
    0o755,
  );
  hub = new Hub(repository);
  hub.commit(files);
  endpoint = await hub.listen();
});
afterEach(() => {
  hub.close();
  box.remove();
});

const argv = (revision = "main", at = endpoint) => ["lab", model, `${box.home}/keep`, repository, revision, at];
const fetch = (more: NodeJS.ProcessEnv = {}, ...rest: Parameters<typeof argv>) =>
  box.run("fetch_model.py", argv(...rest), { SERVING_IMAGE: "image", ...more });

/** Runs it to a good end. */
async function fetched(more: NodeJS.ProcessEnv = {}) {
  const { code, stdout, stderr } = await fetch(more);
  expect([code, code === 0 ? "" : stderr]).toEqual([0, ""]);
  return {
    stderr,
    ...(JSON.parse(stdout) as { changed: boolean; fetchedBytes: number; digest: string; commit: string }),
  };
}

/** Runs it to a bad end, and tells what it said last; it prints no result. */
async function refused(more: NodeJS.ProcessEnv = {}, ...rest: Parameters<typeof argv>): Promise<string> {
  const { code, stdout, stderr } = await fetch(more, ...rest);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).not.toContain("Traceback");
  return stderr.slice(stderr.search(/^model\./m)).trimEnd();
}

/** All files below a folder, by name. */
function contents(folder: string): Record<string, Buffer> {
  const names = fs.readdirSync(folder, { recursive: true, encoding: "utf8" });
  return Object.fromEntries(
    names
      .filter((name) => fs.statSync(path.join(folder, name)).isFile())
      .map((name) => [name, fs.readFileSync(path.join(folder, name))]),
  );
}

const same = (expected: Record<string, Buffer>) => {
  const hashes = (all: Record<string, Buffer>) =>
    Object.fromEntries(
      Object.entries(all)
        .sort()
        .map(([name, content]) => [name, sha256(content)]),
    );
  expect(hashes(contents(model))).toEqual(hashes(expected));
};
const waits = () =>
  fs.existsSync(`${box.home}/waits.log`) ? box.read("waits.log").trimEnd().split("\n").map(Number) : [];
const manifest = () => JSON.parse(box.read("keep/model.json")) as unknown;
const told = (all: Record<string, Buffer>) =>
  Object.fromEntries(
    Object.entries(all).map(([name, content]) => [name, { bytes: content.length, sha256: sha256(content) }]),
  );

test("a model comes once, whole, and its manifest says of what; again nothing moves", async () => {
  const { stderr, ...result } = await fetched();
  expect(result).toEqual({
    ...{ changed: true, files: 5, bytes: total, fetchedBytes: total, commit: hub.head },
    digest: sha256(
      `{${Object.entries(told(shown))
        .sort()
        .map(([file, { bytes, sha256 }]) => `"${file}": {"bytes": ${String(bytes)}, "sha256": "${sha256}"}`)
        .join(", ")}}`,
    ),
    seconds: expect.any(Number) as number,
  });
  expect(stderr).toContain(`${repository} at ${hub.head}: 5 of 5 files are to come, 5.2 MB\n`);
  same(shown);
  // The client's own files are gone.
  expect(fs.existsSync(path.join(model, ".cache"))).toBe(false);
  expect(hub.sent).toEqual(sizes);
  expect(manifest()).toEqual({
    path: model,
    source: { kind: "hub", repository, commit: hub.head, endpoint },
    files: told(shown),
  });

  hub.sent = {};
  hub.requests = [];
  expect(await fetched()).toMatchObject({ changed: false, fetchedBytes: 0, bytes: total, digest: result.digest });
  expect([hub.sent, hub.requests]).toEqual([{}, ["GET listing"]]);
  // Nothing was read again: a line for each file that was hashed.
  expect(box.read("keep/model-seen.jsonl").trimEnd().split("\n")).toHaveLength(5);
});

test("what is not the hub's comes again, and only that: another byte of the same size, or a short file", async () => {
  await fetched();
  for (const [name, spoilt] of [
    [second, Buffer.concat([bytes(1_999_999, 2), Buffer.from("x")])],
    ["config.json", Buffer.from('{"model_type": "evil"}\n')],
    [first, bytes(1_000, 1)],
  ] as const) {
    fs.writeFileSync(path.join(model, name), spoilt);
    hub.sent = {};
    expect(await fetched()).toMatchObject({ changed: true, fetchedBytes: sizes[name] });
    expect(hub.sent).toEqual({ [name]: sizes[name] });
    same(shown);
  }
  // Also where an unfinished download left the client's note that it is there.
  fs.rmSync(path.join(model, first));
  fs.rmSync(path.join(model, second));
  hub.faults[second] = { wrong: 2 };
  await refused();
  fs.writeFileSync(path.join(model, first), bytes(3_000_000, 9));
  expect(await fetched()).toMatchObject({ fetchedBytes: 5_000_000 });
  same(shown);
});

test("what is there already is not fetched, wherever it came from", async () => {
  fs.mkdirSync(model, { recursive: true });
  fs.writeFileSync(path.join(box.home, "elsewhere"), files[first]);
  fs.symlinkSync(path.join(box.home, "elsewhere"), path.join(model, first));
  expect(await fetched()).toMatchObject({ changed: true, fetchedBytes: total - 3_000_000 });
  expect(hub.sent[first]).toBeUndefined();
});

test("another revision brings what differs, and takes away what it no longer has, unless somebody changed it", async () => {
  await fetched();
  fs.writeFileSync(path.join(model, "notes.txt"), "mine");
  const next = {
    ...without(files, second, "tokenizer.json"),
    "config.json": Buffer.from("{}"),
    "chat_template.jinja": Buffer.from("{{ 1 }}"),
  };
  hub.commit(next);
  fs.appendFileSync(path.join(model, "tokenizer.json"), "mine");
  const kept = without(next, ".gitattributes");
  expect(await fetched()).toMatchObject({ changed: true, fetchedBytes: 9, files: 4, commit: hub.head });
  const mine = {
    "notes.txt": Buffer.from("mine"),
    "tokenizer.json": Buffer.concat([bytes(200_000, 3), Buffer.from("mine")]),
  };
  same({ ...kept, ...mine });
  expect(manifest()).toMatchObject({ files: told(kept) });
  // By its hash too, and that is the same then.
  hub.sent = {};
  const { code, stdout } = await fetch({}, hub.head);
  expect([code, (JSON.parse(stdout) as { changed: boolean }).changed, hub.sent]).toEqual([0, false, {}]);
});

test("what lay on the head before anything was fetched stays there: it may be nowhere else", async () => {
  fs.mkdirSync(model, { recursive: true });
  fs.writeFileSync(path.join(model, "mine.safetensors"), "mine");
  // As `model.source.kind` `path` does.
  expect((await box.run("list_model.py", [model, `${box.home}/keep`])).code).toBe(0);
  await fetched();
  same({ ...shown, "mine.safetensors": Buffer.from("mine") });
});

test("a connection that breaks in the middle is taken up again, where it closes and where it is reset", async () => {
  const large = { ...files, [first]: Buffer.alloc(40_000_000, bytes(1_000_003, 1)) };
  hub.commit(large);
  hub.faults[first] = { closed: 1 };
  hub.faults[second] = { reset: 2 };
  const { stderr } = await fetched();
  same(without(large, ".gitattributes"));
  // Closed after 20 MB: the client has pieces of 10 MiB, and kept one. Reset: half of it twice, and all.
  expect(hub.sent).toEqual({ ...sizes, [first]: 20_000_000 + 40_000_000 - (10 << 20), [second]: 4_000_000 });
  expect(stderr).toMatch(new RegExp(`^${second}: \\w+: .+; try 2 of 6 in 1 s$`, "m"));
  expect(waits()).toEqual([1, 1, 2]);
});

test("a hub that is busy is asked again, after as long as it wants", async () => {
  hub.faults.listing = { unavailable: 2, tooMany: 1, retryAfter: 30 };
  hub.faults["config.json"] = { unavailable: 1 };
  hub.faults[first] = { tooMany: 1, retryAfter: 7 };
  const { stderr } = await fetched();
  same(shown);
  expect(hub.sent).toEqual(sizes);
  expect(stderr).toContain(
    "list of files: status 503; try 2 of 6 in 1 s\nlist of files: status 503; try 3 of 6 in 2 s\n" +
      "list of files: status 429; try 4 of 6 in 30 s\n",
  );
  // The client itself waits for a file, a second longer.
  expect(waits()).toEqual([1, 2, 30, 1, 8]);
});

test("a hub that stays away is an error, and what is here already stays", async () => {
  await fetched();
  fs.rmSync(path.join(model, first));
  hub.faults[first] = { unavailable: 9 };
  expect(await refused()).toBe(
    `model.source.repository ${repository}: ${endpoint} gives this node no usable answer (status 503)\n` +
      "  mend: look at the node's DNS, route and proxy (HTTPS_PROXY in its environment), and at model.source.endpoint;\n" +
      "        then pulumi up again: what is here already stays",
  );
  expect(waits()).toEqual([1, 2, 4, 8, 16]);
  hub.close();
  expect(await refused()).toContain(`${endpoint} gives this node no usable answer (ConnectError: [Errno 111] `);
  const there = Object.keys(contents(model)).filter((name) => !name.startsWith("."));
  expect(there.sort()).toEqual(Object.keys(without(shown, first)).sort());
});

test("a file that comes with other bytes comes once more; twice, and it is named and not left there", async () => {
  hub.faults[first] = { wrong: 1 };
  hub.faults["config.json"] = { wrong: 1 };
  const { stderr, ...result } = await fetched();
  expect(stderr).toContain(`config.json, ${first}: came with other bytes than the hub tells; once more\n`);
  expect(result.fetchedBytes).toBe(total + 3_000_000 + 23);
  same(shown);
  fs.rmSync(path.join(model, first));
  hub.faults[first] = { wrong: 2 };
  expect(await refused()).toBe(
    `model.source.repository ${repository}: ${first} came with other bytes than the hub says twice, and was removed\n` +
      "  mend: look at the proxy or mirror on the way to the hub (model.source.endpoint); then pulumi up again",
  );
  expect(fs.existsSync(path.join(model, first))).toBe(false);
});

test("the token opens the hub, and is in no command line and no output", async () => {
  hub.token = token;
  const place = `model.source.repository ${repository}: ${endpoint}`;
  const mend = "pulumi config set --secret huggingFaceToken TOKEN, with one that may read";
  expect(await refused()).toBe(
    `${place} wants a token (status 401): the repository is private, or gated, or is not there\n` +
      `  mend: look at the name, or ${mend} it`,
  );
  const wrong = "hf_anotherCanary";
  const outputs = [await fetch({ HF_TOKEN: wrong })];
  expect(outputs[0]?.stderr).toBe(`${place} refused the token (status 401)\n  mend: ${mend} ${repository}\n`);
  outputs.push(await fetch({ HF_TOKEN: token }));
  expect(outputs[1]?.code).toBe(0);
  same(shown);
  // A client that repeats it, where it tries again and at the end.
  box.write(
    "site/huggingface_hub.py",
    `import os
hf_hub_download = None
class HfApi:
    def model_info(self, *_, **__):
        raise OSError("Illegal header value Bearer " + os.environ["HF_TOKEN"])
`,
  );
  outputs.push(await fetch({ HF_TOKEN: token }));
  expect(outputs[2]?.stderr.match(/Illegal header value Bearer \(token\)/g)).toHaveLength(6);
  expect(JSON.stringify(outputs)).not.toMatch(/Canary/);
  for (const name of ["docker-world/calls.log", "keep/model.json"]) expect(box.read(name)).not.toMatch(/Canary/);
});

test.each<[string, () => void, string[], string]>([
  [
    "gated",
    () => (hub.gated = true),
    [],
    "does not hand it to this token's account (status 403)\n" +
      "  mend: accept the licence on the model's page of the hub with the account of huggingFaceToken, wait for approval, and\n" +
      "        pulumi config set --secret huggingFaceToken TOKEN, with one that may read gated repositories",
  ],
  [
    "without this revision",
    () => undefined,
    ["v2"],
    "has no revision v2 of it (status 404)\n" +
      "  mend: pulumi config set --path model.source.revision COMMIT, one that the hub's page of the model lists",
  ],
  [
    "that is not there",
    () => (hub.repository = "owner/another"),
    [],
    "has no such repository, or hides it from this token (status 404)\n" +
      "  mend: pulumi config set --path model.source.repository OWNER/NAME, or pulumi config set --secret huggingFaceToken" +
      " TOKEN, if it is private",
  ],
])("a repository %s is an error at once", async (_, spoil, [revision], message) => {
  spoil();
  expect(await refused({}, revision)).toBe(`model.source.repository ${repository}: ${endpoint} ${message}`);
  expect(waits()).toEqual([]);
  expect(fs.existsSync(`${box.home}/keep/model.json`)).toBe(false);
});

test("files that don't fit on the disk are not begun, nor those that would leave it full", async () => {
  const { bavail, bsize } = fs.statfsSync(box.home);
  for (const [size, shownSize] of [
    [1e15, "1000\\.0 TB"],
    [bavail * bsize - 500_000_000, "\\d+\\.\\d [GTM]B"],
  ] as const) {
    hub.sizes[first] = size;
    expect(await refused()).toMatch(
      new RegExp(
        `^model\\.source\\.repository ${repository}: 5 files of ${shownSize} are to come, and 1\\.0 GB stay free: ` +
          `${shownSize} are needed, \\d+\\.\\d [GTM]B are free on the disk of ${model}\\n` +
          "  mend: make room there, or set model.path to a folder on a larger disk$",
      ),
    );
  }
  expect(hub.sent).toEqual({});
});

test("a disk that fills up meanwhile is named, and nothing is tried again", async () => {
  // No client that is real can be brought to it.
  box.write(
    "site/huggingface_hub.py",
    `import errno, types
class HfApi:
    def model_info(self, *_, **__):
        return types.SimpleNamespace(sha="1", siblings=[types.SimpleNamespace(rfilename="a", size=1, lfs=None, blob_id="2")])
def hf_hub_download(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")
`,
  );
  expect(await refused()).toBe(
    `model.source.repository ${repository}: the client can't write to ${model} (OSError: [Errno 28] No space left on device)\n` +
      "  mend: make room there, or give this user the folder",
  );
  expect(waits()).toEqual([]);
});

test("an address that answers and is no hub's is said to be none", async () => {
  const { port, close } = await serve((_, response) => response.end("<html>Log in to the network</html>"));
  const other = `http://127.0.0.1:${port}`;
  expect(await refused({}, "main", other)).toContain(
    `${other} gives this node no usable answer (JSONDecodeError: Expecting value: line 1 column 1 (char 0))\n`,
  );
  expect(waits()).toEqual([]);
  close();
});

test("a folder that can't be made or written is named", async () => {
  box.write("models, all", "a file");
  expect(await refused()).toBe(
    `model.path ${model}: can't be made: Not a directory\n  mend: sudo install -d -o aurora ${model}`,
  );
  expect(hub.requests).toEqual([]);
});

test("an image without the client, and no image, are errors", async () => {
  box.write("site/huggingface_hub.py", "");
  expect(await refused()).toMatch(/: image image has no usable huggingface_hub \(cannot import name 'HfApi' /);
  box.write("docker-world/images.json", {});
  expect((await fetch()).stderr).toBe(
    "Error: No such image: image\n" +
      `model.source.repository ${repository}: the client in image image ended (exit code 1), its words are above\n`,
  );
  // It is gone before it is asked for a file.
  box.write("docker-world/images.json", { image: { id: "sha256:1" } });
  const listing = { commit: "1", files: { a: { bytes: 1, sha256: null, git: "2" } } };
  box.write("docker-world/python", `#!/bin/sh\necho '${JSON.stringify(listing)}'\nexit 137\n`);
  expect(await refused()).toBe(
    `model.source.repository ${repository}: the client in image image ended (exit code 137), its words are above`,
  );
});

/** The container's name. */
const name = () => `dgx-spark-fetch-${sha256(model).slice(0, 12)}`;

test("the container is one a folder, as this user, with this folder alone; what an earlier one left is removed", async () => {
  box.write("docker-world/containers.json", { [name()]: { status: "created" } });
  await fetched({ HF_TOKEN: token, https_proxy: "http://127.0.0.1:1", NO_PROXY: "127.0.0.1" });
  const calls = box
    .read("docker-world/calls.log")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as string[]);
  const quoted = model.replaceAll('"', '""');
  const [, also = ""] = /^Groups:\t(.*)$/m.exec(fs.readFileSync("/proc/self/status", "utf8")) ?? [];
  const groups = also.split(" ").flatMap((group) => (group ? ["--group-add", group] : []));
  expect(calls).toEqual([
    ["rm", name()],
    [
      ...["run", "--rm", "--interactive", "--pull", "never"],
      ...["--name", name(), "--label", "dgx-spark-serving.deployment=lab"],
      ...["--network", "host", "--user", `${String(process.getuid?.())}:${String(process.getgid?.())}`, ...groups],
      ...["--env", "HF_TOKEN", "--env", "NO_PROXY", "--env", "https_proxy", "--env", `HF_ENDPOINT=${endpoint}`],
      ...["--mount", `type=bind,"source=${quoted}","target=${quoted}"`, "--entrypoint", "python3", "image"],
      ...["-c", fs.readFileSync("scripts/remote/hub_download.py", "utf8"), repository, "main", model],
    ],
  ]);
  expect(JSON.parse(box.read("docker-world/containers.json"))).toEqual({});
});

test("an earlier download to the folder is waited for, and not ended", async () => {
  box.write("docker-world/containers.json", { [name()]: { status: "running" } });
  const run = fetched();
  const asked = () =>
    fs.existsSync(`${box.docker}/calls.log`) && box.read("docker-world/calls.log").split("\n").length > 2;
  await until(asked);
  expect(hub.requests).toEqual([]);
  box.write("docker-world/containers.json", {});
  expect((await run).changed).toBe(true);
});

test("how far it is, is told; killed in the middle it leaves no process, and goes on with the file it was at", async () => {
  const large = { ...files, [second]: Buffer.alloc(80_000_000, bytes(1_000_003, 2)) };
  hub.commit(large);
  hub.faults[second] = { bytesPerSecond: 8_000_000 };
  const child = spawn("python3", ["-B", path.resolve("scripts/remote/fetch_model.py"), ...argv()], {
    env: { ...box.environment(), SERVING_IMAGE: "image" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr.on("data", (data: Buffer) => (said += data.toString()));
  await until(() => said.includes("download: "));
  const [, done = "", left = ""] = /^download: (\S+) MB of 83\.2 MB, \S+ MB\/s, (\d+) s left$/m.exec(said) ?? [];
  // The first file, and some of the client's pieces of 10 MiB of the second.
  expect(["13.5", "24.0", "34.5", "45.0"]).toContain(done);
  expect(Number(left)).toBeGreaterThan(0);
  const ours = () => processes((id) => fs.readFileSync(`/proc/${id}/cmdline`, "utf8").split("\0").includes(model));
  expect(ours()).toHaveLength(2);
  child.kill("SIGKILL");
  await until(() => ours().length === 0);
  expect(hub.sent[first]).toBe(3_000_000);
  const before = hub.sent[second] ?? 0;
  expect(before).toBeLessThan(80_000_000);
  const parts = () => Object.keys(contents(model)).filter((file) => file.endsWith(".incomplete")).length;
  expect(parts()).toBe(1);
  // The client does not take it up, and it would be in the way of the next try.
  hub.sizes[second] = 1e15;
  await refused();
  expect(parts()).toBe(0);

  hub.sizes = {};
  hub.faults[second] = {};
  expect(await fetched()).toMatchObject({ changed: true, fetchedBytes: 80_200_002 });
  same(without(large, ".gitattributes"));
  expect(hub.sent).toEqual({ ...sizes, [second]: before + 80_000_000 });
});

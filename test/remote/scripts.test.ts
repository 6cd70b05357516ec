import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Sandbox } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

/** Runs a script twice: both succeed, and what each says of its changes. */
async function twice(script: string, args: string[]) {
  const results = [await box.run(script, args), await box.run(script, args)];
  expect(results.map(({ code, stderr }) => (code === 0 ? "" : stderr))).toEqual(["", ""]);
  return results.map(({ stdout }) => JSON.parse(stdout) as Record<string, unknown>);
}

const architecture = process.arch === "x64" ? "amd64" : process.arch;
test("all images of a deployment go, and nobody else's", async () => {
  const others = ["dgx-spark-serving:lab-2-0123456789ab", "dgx-spark-serving:lab-mine", "vllm:lab-0123456789ab"];
  const own = ["dgx-spark-serving:lab-0123456789ab", "dgx-spark-serving:lab-ba9876543210"];
  const image = { id: "sha256:1", architecture };
  box.write("docker-world/images.json", Object.fromEntries([...others, ...own].map((name) => [name, image])));
  expect(await twice("remove-image.sh", ["lab"])).toEqual([{ changed: true }, { changed: false }]);
  expect(Object.keys(JSON.parse(box.read("docker-world/images.json")) as object)).toEqual(others);
});

test("with the folder of a deployment all goes that is left of it, and images unless they are kept", async () => {
  const own = "dgx-spark-serving:lab-0123456789ab";
  const ours = { status: "running", deployment: "lab" };
  box.write("docker-world/images.json", { [own]: { id: "sha256:1", architecture } });
  box.write("docker-world/containers.json", { one: ours, "lab-2": { ...ours, deployment: "lab-2" }, two: ours });
  for (const name of ["lab", "lab-2"]) box.write(`docker-world/volumes/dgx-spark-${name}-session`, "");
  box.write(authorizedKeys, `${entry(body, "folder")}${entry()}`, 0o600);
  box.write("folder/nodes/spark-2@another", "");
  const images = () => Object.keys(JSON.parse(box.read("docker-world/images.json")) as object);
  const workspace = (...args: string[]) => box.run("workspace.sh", args);
  const done = (changed: boolean) => ({ code: 0, stdout: `{"changed": ${String(changed)}}\n` });
  expect(await workspace("make", "folder")).toMatchObject(done(false));
  // Another machine, with a Docker of its own, still works in the folder.
  expect(await workspace("remove", "folder", "lab", "keep")).toMatchObject(done(false));
  expect(images()).toEqual([own]);
  expect(Object.keys(JSON.parse(box.read("docker-world/containers.json")) as object)).toEqual(["lab-2"]);
  expect(fs.readdirSync(`${box.home}/docker-world/volumes`)).toEqual(["dgx-spark-lab-2-session"]);
  expect(box.read(authorizedKeys)).toBe(entry());
  expect(await workspace("remove", "folder", "lab", "remove")).toMatchObject(done(false));
  expect(images()).toEqual([]);
  fs.rmSync(`${box.home}/folder/nodes/spark-2@another`);
  expect(await workspace("remove", "folder", "lab", "remove")).toMatchObject(done(true));
  expect(fs.existsSync(`${box.home}/folder`)).toBe(false);
});

test.each([
  ["remove-image.sh", "lab"],
  ["workspace.sh", "remove", "work", "lab", "remove"],
])("without an answer of Docker's %s is no success", async (script, ...args) => {
  box.write("work/nodes/.keep", "");
  fs.rmSync(`${box.home}/bin/docker`);
  box.write("bin/docker", "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n", 0o755);
  expect(await box.run(script, args)).toEqual({
    code: 1,
    stdout: "",
    stderr: "Cannot connect to the Docker daemon\n",
  });
  expect(fs.existsSync(`${box.home}/work`)).toBe(true);
});

test("the fabric key is made once and stays", async () => {
  const [first, second] = await twice("fabric-key.sh", ["key"]);
  expect(first).toEqual({
    changed: true,
    publicKey: expect.stringMatching(/^ssh-ed25519 AAAA\S+ dgx-spark-serving$/) as string,
  });
  expect(second).toEqual({ ...first, changed: false });
  expect(fs.statSync(path.join(box.home, "key")).mode & 0o777).toBe(0o600);
});

test.each<[string, (file: string) => void]>([
  [
    "garbage",
    (file) => {
      fs.writeFileSync(file, "garbage\n", { mode: 0o600 });
    },
  ],
  [
    "readable by others",
    (file) => {
      fs.chmodSync(file, 0o644);
    },
  ],
  [
    "a folder",
    (file) => {
      fs.rmSync(file);
      fs.mkdirSync(file);
    },
  ],
])("a fabric key that is %s is named with its cure", async (_, spoil) => {
  await box.run("fabric-key.sh", ["key"]);
  spoil(path.join(box.home, "key"));
  const { code, stdout, stderr } = await box.run("fabric-key.sh", ["key"]);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(/^the fabric key key can't be read: remove it and run again, then a new one is made$/m);
});

const body = "AAAAC3NzaC1lZDI1NTE5AAAAIFabric0123456789+/abcdefghijklmnopqrstuvwxyz=";
const renewed = body.replace("Fabric", "Renewed");
const authorizedKeys = ".ssh/authorized_keys";
/** The deployment's folder, as the step that makes it leaves it. */
function folder(name = "work"): string {
  fs.mkdirSync(path.join(box.home, name), { recursive: true });
  return name;
}
const authorize = (action: string, key = `ssh-ed25519 ${body} x`, work = folder(), from = "192.168.200.12") =>
  box.run("authorize-fabric-key.sh", [action, work, "receive-image.sh", ...(action === "add" ? [from, key] : [])]);
const entry = (key = body, work = "work", from = "192.168.200.12") =>
  `restrict,from="${from}",command="bash ${work}/receive-image.sh" ssh-ed25519 ${key} dgx-spark-serving\n`;

test("the fabric key may run one command from one address, and the person's own keys stay as they are", async () => {
  const own = "ssh-ed25519 AAAAOwn me@desk";
  box.write(".ssh/authorized_keys", own, 0o600);
  const args = [folder(), "receive-image.sh", "192.168.200.12", `ssh-ed25519 ${body} dgx-spark-serving`];
  expect(await twice("authorize-fabric-key.sh", ["add", ...args])).toEqual([{ changed: true }, { changed: false }]);
  expect(box.read(".ssh/authorized_keys")).toBe(`${own}\n${entry()}`);
  expect(box.read("work/receive-image.sh")).toBe(fs.readFileSync("scripts/remote/receive-image.sh", "utf8"));
  expect(fs.statSync(path.join(box.home, ".ssh/authorized_keys")).mode & 0o777).toBe(0o600);
  expect(await twice("authorize-fabric-key.sh", ["remove", ...args.slice(0, 2)])).toEqual([
    { changed: true },
    { changed: false },
  ]);
  expect(box.read(".ssh/authorized_keys")).toBe(`${own}\n`);
  expect(fs.readdirSync(path.join(box.home, ".ssh"))).toEqual(["authorized_keys"]);
});

test("what runs for the key is put right when somebody changed it", async () => {
  await authorize("add");
  for (const change of ["echo changed", undefined]) {
    if (change === undefined) fs.rmSync(path.join(box.home, "work/receive-image.sh"));
    else box.write("work/receive-image.sh", change);
    expect((await authorize("add")).stdout).toBe('{"changed": true}\n');
    expect(box.read("work/receive-image.sh")).toBe(fs.readFileSync("scripts/remote/receive-image.sh", "utf8"));
    expect(fs.readdirSync(path.join(box.home, "work"))).toEqual(["receive-image.sh"]);
  }
});

test.each(["", "ssh-ed25519", "ssh-ed25519 ", "ssh-ed25519  x", "ssh-ed25519 AAAA", `ssh-rsa ${body}`, body])(
  "what is no public key is not let in, and is in nobody's way out: %j",
  async (key) => {
    const lines = "ssh-ed25519 AAAAOwn me@desk\n# a comment\n";
    box.write(authorizedKeys, lines + entry(), 0o600);
    expect(await authorize("add", key)).toEqual({
      code: 2,
      stdout: "",
      stderr: `not a public key (ssh-ed25519 BODY): '${key}'\n`,
    });
    expect(box.read(authorizedKeys)).toBe(lines + entry());
    expect((await authorize("remove", key)).stdout).toBe('{"changed": true}\n');
    expect(box.read(authorizedKeys)).toBe(lines);
  },
);

test("a renewed key and another head take the place of the old, and all other lines stay byte for byte", async () => {
  const others = [
    "# a comment, and a line that ends like Windows does\r\n\n",
    "ssh-rsa AAAAOwn me@desk\r\n",
    `ssh-ed25519 ${body} the person's own use of the key\n`,
    entry(body, "other"),
    `# ${entry()}`,
    "  \t trailing blanks and bytes: \u00e9 \\n \n",
  ].join("");
  box.write(authorizedKeys, entry() + others + entry(body, "work", "192.168.200.1"), 0o640);
  expect((await authorize("add", `ssh-ed25519 ${renewed}`)).stdout).toBe('{"changed": true}\n');
  expect(box.read(authorizedKeys)).toBe(others + entry(renewed));
  // The key that is named does not matter: what runs the command goes.
  expect((await authorize("remove")).stdout).toBe('{"changed": true}\n');
  expect(box.read(authorizedKeys)).toBe(others);
  expect((await authorize("remove")).stdout).toBe('{"changed": false}\n');
  expect(fs.statSync(path.join(box.home, authorizedKeys)).mode & 0o777).toBe(0o640);
});

test("a folder with a backslash is found again", async () => {
  const command = folder(String.raw`a\tb`);
  expect((await authorize("add", undefined, command)).stdout).toBe('{"changed": true}\n');
  expect((await authorize("add", undefined, command)).stdout).toBe('{"changed": false}\n');
  expect(box.read(authorizedKeys)).toBe(entry(body, command));
});

test("a list of keys that is a link stays one", async () => {
  box.write("dotfiles/keys", "ssh-ed25519 AAAAOwn me@desk\n", 0o600);
  fs.mkdirSync(path.join(box.home, ".ssh"), { mode: 0o700 });
  fs.symlinkSync("../dotfiles/keys", path.join(box.home, authorizedKeys));
  expect((await authorize("add")).stdout).toBe('{"changed": true}\n');
  expect(fs.readlinkSync(path.join(box.home, authorizedKeys))).toBe("../dotfiles/keys");
  expect(box.read("dotfiles/keys")).toBe(`ssh-ed25519 AAAAOwn me@desk\n${entry()}`);
  expect(fs.readdirSync(path.join(box.home, "dotfiles"))).toEqual(["keys"]);
});

test("deployments that authorize at the same time all get their entry, and nothing else is left", async () => {
  const commands = Array.from({ length: 8 }, (_, index) => folder(String(index)));
  const results = await Promise.all(commands.map((command) => authorize("add", undefined, command)));
  expect(results.map(({ stdout }) => stdout)).toEqual(commands.map(() => '{"changed": true}\n'));
  expect(
    box
      .read(authorizedKeys)
      .split(/(?<=\n)/)
      .sort(),
  ).toEqual(commands.map((command) => entry(body, command)));
  expect(fs.readdirSync(path.join(box.home, ".ssh"))).toEqual(["authorized_keys"]);
  expect(fs.statSync(path.join(box.home, ".ssh")).mode & 0o777).toBe(0o700);
  expect(fs.statSync(path.join(box.home, authorizedKeys)).mode & 0o777).toBe(0o600);
});

/** A file of one tensor of these bytes: the length of the header, the header, the bytes. */
function safetensors(content: string, header = tensorHeader(content.length)): string {
  return `${String.fromCharCode(header.length)}${"\0".repeat(7)}${header}${content}`;
}

const tensorHeader = (end: number) =>
  JSON.stringify({ __metadata__: { format: "pt" }, t: { dtype: "U8", shape: [end], data_offsets: [0, end] } });

const tensors = safetensors("12345");

test("a whole model passes", async () => {
  box.write("my model/config.json", {});
  box.write("my model/model-1.safetensors", tensors);
  const index = { weight_map: { a: "model-1.safetensors" } };
  box.write("my model/model.safetensors.index.json", index);
  const sizes = {
    ...{ "config.json": 2, "model-1.safetensors": tensors.length },
    "model.safetensors.index.json": JSON.stringify(index).length,
  };
  for (const slash of ["", "/"]) {
    expect(await twice("check_model.py", [path.join(box.home, "my model") + slash])).toEqual(
      Array(2).fill({
        changed: false,
        files: 3,
        bytes: Object.values(sizes).reduce((sum, size) => sum + size),
        digest: digest(sizes),
      }),
    );
  }
});

/** What check_model.py makes of names and sizes: the digest of them as Python writes JSON. */
function digest(sizes: Record<string, number>): string {
  const pairs = Object.entries(sizes)
    .sort()
    .map(([name, size]) => `${JSON.stringify(name)}: ${String(size)}`);
  return createHash("sha256")
    .update(`{${pairs.join(", ")}}`)
    .digest("hex");
}

test("the digest tells models apart by names and sizes, not by times, places or other files", async () => {
  const model = {
    ...{ "config.json": "{}", "a.safetensors": tensors, "b.safetensors": safetensors("123") },
    ...{ "tokenizer.json": "{}", "tokenizer.model": "1", "chat_template.jinja": "1", "qwen.tiktoken": "1" },
  };
  const without = (name: keyof typeof model) =>
    Object.fromEntries(Object.entries(model).filter(([each]) => each !== name));
  const folders: Record<string, Record<string, string>> = {
    first: model,
    "a copy elsewhere": { ...model, "a.safetensors": safetensors("54321"), "README.md": "hello" },
    "another size": { ...model, "b.safetensors": safetensors("1234") },
    "another name": { ...without("b.safetensors"), "c.safetensors": safetensors("123") },
    "sizes swapped": { ...model, "a.safetensors": safetensors("123"), "b.safetensors": tensors },
    "another config": { ...model, "config.json": '{"a": 1}' },
    "one more": { ...model, "c.safetensors": tensors },
    "no tokenizer": without("tokenizer.json"),
    "no tokenizer of another kind": without("tokenizer.model"),
    "a third": without("qwen.tiktoken"),
    "no chat template": without("chat_template.jinja"),
    "a generation config": { ...model, "generation_config.json": "{}" },
  };
  const digests: Record<string, unknown> = {};
  for (const [folder, files] of Object.entries(folders)) {
    for (const [name, content] of Object.entries(files)) box.write(`${folder}/${name}`, content);
    if (folder !== "first") fs.utimesSync(path.join(box.home, folder, "a.safetensors"), 1, 1);
    const [first, second] = await twice("check_model.py", [path.join(box.home, folder)]);
    expect(second).toEqual(first);
    digests[folder] = first?.["digest"];
  }
  expect(digests["first"]).toBe(
    digest(Object.fromEntries(Object.entries(model).map(([name, { length }]) => [name, length]))),
  );
  expect(digests["a copy elsewhere"]).toBe(digests["first"]);
  expect(new Set(Object.values(digests)).size).toBe(Object.keys(folders).length - 1);
});

test("a digest is of what links lead to", async () => {
  box.write("m/config.json", {});
  box.write("blobs/0123", tensors);
  fs.symlinkSync("../blobs/0123", path.join(box.home, "m/a.safetensors"));
  expect(await twice("check_model.py", [path.join(box.home, "m")])).toEqual(
    Array(2).fill({
      ...{ changed: false, files: 2, bytes: 2 + tensors.length },
      digest: digest({ "a.safetensors": tensors.length, "config.json": 2 }),
    }),
  );
});

test.each<[string, Record<string, unknown>, RegExp]>([
  ["no folder", {}, /m is not there/],
  ["no config", { "m/x": "" }, /config\.json is not there/],
  ["no weights", { "m/config.json": {} }, /no weights/],
  ["a broken config", { "m/config.json": "{", "m/a.safetensors": tensors }, /m: Expecting property name/],
  [
    "a missing shard",
    {
      "m/config.json": {},
      "m/a.safetensors": tensors,
      "m/model.safetensors.index.json": { weight_map: { x: "a.safetensors", y: "b.safetensors" } },
    },
    /1 weight files are missing, first b\.safetensors/,
  ],
  [
    "a missing shard of the other format",
    {
      "m/config.json": {},
      "m/pytorch_model-1.bin": "1",
      "m/pytorch_model.bin.index.json": { weight_map: { x: "pytorch_model-1.bin", y: "pytorch_model-2.bin" } },
    },
    /1 weight files are missing, first pytorch_model-2\.bin/,
  ],
  [
    "a missing part of a GGUF",
    { "m/config.json": {}, "m/a-00001-of-00003.gguf": "1", "m/a-00003-of-00003.gguf": "1" },
    /1 weight files are missing, first a-00002-of-00003\.gguf/,
  ],
  [
    "nothing but what looks like weights",
    { "m/config.json": {}, "m/training_args.bin": "1", "m/optimizer.bin": "1" },
    /no weights \(\*\.safetensors, \*\.gguf, pytorch_model\*\.bin, consolidated\*\.pth\)/,
  ],
  [
    "an empty weight file",
    { "m/config.json": {}, "m/a.safetensors": tensors, "m/b.safetensors": "" },
    /m: b\.safetensors is empty; copy it again\n$/,
  ],
  ...[1, 7, 30, tensors.length - 1].map((kept): [string, Record<string, unknown>, RegExp] => [
    `a weight file of which ${kept} bytes were copied`,
    { "m/config.json": {}, "m/a.safetensors": tensors, "m/b.safetensors": tensors.slice(0, kept) },
    new RegExp(`m: b\\.safetensors is not whole: ${kept} of \\d+ bytes; copy it again\n$`),
  ]),
  [
    "a weight file with more than its tensors",
    { "m/config.json": {}, "m/a.safetensors": `${tensors}6` },
    new RegExp(`m: a\\.safetensors is not whole: ${tensors.length + 1} of ${tensors.length} bytes; copy it again\n$`),
  ],
  ...[
    // What git leaves where the large files were not fetched.
    "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    ...["[]", "{", '{"t":1}', '{"t":{}}', '{"t":{"data_offsets":["a","b"]}}', '{"t":{"data_offsets":[0]}}'].map(
      (header) => safetensors("12345", header),
    ),
  ].map((content): [string, Record<string, unknown>, RegExp] => [
    `the weight file ${JSON.stringify(content)}`,
    { "m/config.json": {}, "m/a.safetensors": content },
    /m: a\.safetensors is not whole: its header is broken; copy it again\n$/,
  ]),
  ...[[], {}, { weight_map: {} }, { weight_map: ["a.safetensors"] }, { weight_map: { x: ["a.safetensors"] } }].map(
    (index): [string, Record<string, unknown>, RegExp] => [
      `the index ${JSON.stringify(index)}`,
      { "m/config.json": {}, "m/a.safetensors": tensors, "m/model.safetensors.index.json": index },
      /^model\.path \S+m: model\.safetensors\.index\.json has no weight_map that names a file for each tensor\n$/,
    ],
  ),
])("a model with %s is refused", async (_, files, message) => {
  for (const [name, content] of Object.entries(files)) box.write(name, content);
  const result = await box.run("check_model.py", [path.join(box.home, "m")]);
  expect(result).toMatchObject({ code: 1, stdout: "" });
  expect(result.stderr).toMatch(message);
});

test.each([
  ["a.gguf", {}],
  ["consolidated.00.pth", {}],
  ["pytorch_model.bin", { "training_args.bin": "12" }],
  // Downloaded without its .bin files, of which the index is left.
  ["a.safetensors", { "pytorch_model.bin.index.json": { weight_map: { x: "pytorch_model-1.bin" } } }],
])("the weights %s alone pass, with %j besides", async (weights, besides) => {
  const files = { "config.json": {}, [weights]: weights.endsWith(".safetensors") ? tensors : "12345", ...besides };
  for (const [name, content] of Object.entries(files)) box.write(`m/${name}`, content);
  const [first, second] = await twice("check_model.py", [path.join(box.home, "m")]);
  expect(second).toEqual(first);
  expect(first).toMatchObject({ changed: false, files: weights === "a.safetensors" ? 3 : 2 });
});

test("a weight file that links to nowhere is refused", async () => {
  box.write("m/config.json", {});
  fs.symlinkSync("../blobs/0123", path.join(box.home, "m/a.safetensors"));
  const result = await box.run("check_model.py", [path.join(box.home, "m")]);
  expect(result.code).toBe(1);
  expect(result.stderr).toContain("a.safetensors is not there");
});

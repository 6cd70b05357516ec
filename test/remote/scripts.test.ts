import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseFacts } from "../../components/facts";
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
const reference = "registry.example/vllm@sha256:0123";

test("facts are typed, and the same twice", async () => {
  const [first, second] = [await box.run("facts.py", []), await box.run("facts.py", [])];
  expect(second).toEqual(first);
  const facts = parseFacts(first.stdout);
  expect(facts).toMatchObject({ hostname: os.hostname(), kernel: os.release(), memoryTotalBytes: os.totalmem() });
  // The fake docker knows no `version`, and there is no nvidia-smi: unknown is null.
  expect(facts).toMatchObject({ dockerVersion: null, gpuName: null, gpuDriverVersion: null });
});

test.each([
  ["[N/A]", null],
  ["[Not Supported]", null],
  ["NVIDIA GB10", "NVIDIA GB10"],
])("nvidia-smi's answer %s is %s", async (answer, expected) => {
  box.write("bin/nvidia-smi", `#!/bin/sh\necho '${answer}'\n`, 0o755);
  expect(parseFacts((await box.run("facts.py", [])).stdout).gpuName).toBe(expected);
});

test("nvidia-smi without a driver is null", async () => {
  box.write(
    "bin/nvidia-smi",
    "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n",
    0o755,
  );
  expect(parseFacts((await box.run("facts.py", [])).stdout).gpuName).toBeNull();
});

test("the fabric interface holds the address", async () => {
  expect(await twice("check_fabric.py", ["lo", "127.0.0.1"])).toEqual(
    Array(2).fill({ changed: false, interface: "lo", address: "127.0.0.1" }),
  );
});

test("every problem of the fabric is named at once", async () => {
  const result = await box.run("check_fabric.py", ["enp9s9", "127.0.0.1", "rocep1s0f0"]);
  expect(result.code).toBe(1);
  expect(result.stderr).toMatch(/^fabric\.interface enp9s9 is not on this node; it has: .*\blo\b/m);
  expect(result.stderr).toMatch(/^fabric\.hcas rocep1s0f0 is not on this node; it has: /m);
  const wrongAddress = await box.run("check_fabric.py", ["lo", "192.0.2.7"]);
  expect(wrongAddress.stderr).toMatch(
    /^fabric\.address 192\.0\.2\.7 is not on lo, which has 127\.0\.0\.1.*; it is on no interface/,
  );
});

test("an image is pulled once, and tagged once", async () => {
  box.write("docker-world/registry", { id: "sha256:1", architecture });
  expect(await twice("pull-image.sh", [reference, "dgx-spark-serving:t"])).toEqual([
    { changed: true, id: "sha256:1" },
    { changed: false, id: "sha256:1" },
  ]);
  expect(box.read("docker-world/calls.log").match(/"pull"/g)).toHaveLength(1);
  expect(await twice("has-image.sh", ["dgx-spark-serving:t"])).toEqual(
    Array(2).fill({ changed: false, id: "sha256:1" }),
  );
  expect(await twice("remove-image.sh", ["dgx-spark-serving:t"])).toEqual([{ changed: true }, { changed: false }]);
  expect(await box.run("has-image.sh", ["dgx-spark-serving:t"])).toMatchObject({
    code: 1,
    stderr: "image dgx-spark-serving:t is not on this node\n",
  });
});

test("an image that the registry lacks, or for another machine, is refused", async () => {
  expect(await box.run("pull-image.sh", [reference, "t"])).toMatchObject({
    code: 1,
    stdout: "",
    stderr: expect.stringContaining("manifest for") as string,
  });
  box.write("docker-world/registry", { id: "sha256:1", architecture: "s390x" });
  const result = await box.run("pull-image.sh", [reference, "t"]);
  expect(result).toMatchObject({ code: 1, stdout: "" });
  expect(result.stderr).toContain("the image is for s390x, this machine is ");
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

test("the fabric key may run one command from one address, and the person's own keys stay as they are", async () => {
  const own = "ssh-ed25519 AAAAOwn me@desk";
  box.write(".ssh/authorized_keys", own, 0o600);
  const args = ["192.168.200.12", "bash receive.sh", "ssh-ed25519 AAAAFabric dgx-spark-serving"];
  expect(await twice("authorize-fabric-key.sh", ["add", ...args])).toEqual([{ changed: true }, { changed: false }]);
  expect(box.read(".ssh/authorized_keys")).toBe(
    `${own}\nrestrict,from="192.168.200.12",command="bash receive.sh" ssh-ed25519 AAAAFabric dgx-spark-serving\n`,
  );
  expect(fs.statSync(path.join(box.home, ".ssh/authorized_keys")).mode & 0o777).toBe(0o600);
  expect(await twice("authorize-fabric-key.sh", ["remove", ...args])).toEqual([{ changed: true }, { changed: false }]);
  expect(box.read(".ssh/authorized_keys")).toBe(`${own}\n`);
  expect(fs.readdirSync(path.join(box.home, ".ssh"))).toEqual(["authorized_keys"]);
});

test("the fabric key gets layers and loads, and nothing else", async () => {
  box.write("docker-world/images.json", { t: { id: "sha256:1", architecture } });
  const ask = (command: string) => box.run("receive-image.sh", [], { SSH_ORIGINAL_COMMAND: command });
  expect(await ask("layers t")).toEqual({ code: 0, stdout: '["sha256:1"]\n', stderr: "" });
  expect(await ask("layers u")).toEqual({ code: 0, stdout: "absent\n", stderr: "" });
  for (const command of ["", "sh", "load; reboot", "layers"]) {
    expect(await ask(command)).toEqual({ code: 1, stdout: "", stderr: "this key may only copy images\n" });
  }
});

test("a whole model passes", async () => {
  box.write("my model/config.json", {});
  box.write("my model/model-1.safetensors", "12345");
  box.write("my model/model.safetensors.index.json", { weight_map: { a: "model-1.safetensors" } });
  expect(await twice("check_model.py", [path.join(box.home, "my model")])).toEqual(
    Array(2).fill({ changed: false, files: 1, bytes: 5 }),
  );
});

test.each<[string, Record<string, unknown>, RegExp]>([
  ["no folder", {}, /m is not there/],
  ["no config", { "m/x": "" }, /config\.json is not there/],
  ["no weights", { "m/config.json": {} }, /no weights/],
  ["a broken config", { "m/config.json": "{", "m/a.safetensors": "1" }, /m: Expecting property name/],
  [
    "a missing shard",
    {
      "m/config.json": {},
      "m/a.safetensors": "1",
      "m/model.safetensors.index.json": { weight_map: { x: "a.safetensors", y: "b.safetensors" } },
    },
    /1 weight files that the index names are missing, first b\.safetensors/,
  ],
])("a model with %s is refused", async (_, files, message) => {
  for (const [name, content] of Object.entries(files)) box.write(name, content);
  const result = await box.run("check_model.py", [path.join(box.home, "m")]);
  expect(result).toMatchObject({ code: 1, stdout: "" });
  expect(result.stderr).toMatch(message);
});

test("a weight file that links to nowhere is refused", async () => {
  box.write("m/config.json", {});
  fs.symlinkSync("../blobs/0123", path.join(box.home, "m/a.safetensors"));
  const result = await box.run("check_model.py", [path.join(box.home, "m")]);
  expect(result.code).toBe(1);
  expect(result.stderr).toContain("a.safetensors is not there");
});

test("a file that this node's Python can't compile is refused with its line", async () => {
  const good = box.write("good.py", "x = 1\n");
  const bad = box.write("bad.py", "x = 1\ny = (\n");
  expect((await twice("check_syntax.py", [good])).map(({ changed }) => changed)).toEqual([false, false]);
  const result = await box.run("check_syntax.py", [bad]);
  expect(result).toMatchObject({ code: 1, stdout: "" });
  expect(result.stderr).toMatch(/bad\.py, line 2: '\(' was never closed \(Python 3\./);
  expect(fs.readdirSync(box.home)).not.toContain("__pycache__");
});

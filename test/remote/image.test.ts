import * as fs from "node:fs";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { processes, Sandbox, until } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
  fs.symlinkSync(path.resolve("test/remote/ssh"), path.join(box.home, "bin/ssh"));
  box.write("keep/fabric_ed25519", "a key");
  engine({ vllm: "0.32.0", ray: "2.60.0" });
});
afterEach(() => {
  box.remove();
});

const architecture = process.arch === "x64" ? "amd64" : process.arch;
const reference = "registry.example/vllm@sha256:0123";
const image = { id: "sha256:1", architecture };
const inRegistry = { ...image, password: "it's $HOME" };
const tag = "dgx-spark-serving:t";
const versions = { vllm: "0.32.0", ray: "2.60.0", python: expect.stringMatching(/^3\./) as string };

/** What the image has on its PATH: vllm, whose version the Python beside it tells, and ray, which tells its own. */
function engine({ vllm, ray }: { vllm?: string; ray?: string }, noise = ""): void {
  fs.rmSync(path.join(box.home, "image"), { recursive: true, force: true });
  if (vllm !== undefined) box.write("image/vllm", "", 0o755);
  if (ray !== undefined) box.write("image/ray", `#!/bin/sh\n${noise}\necho "ray, version ${ray}"\n`, 0o755);
  box.write("image/python3", `#!/bin/sh\n${noise}\necho ${vllm ?? ""}\n`, 0o755);
  const python = `#!/bin/sh\n${noise}\nPATH=${box.home}/image exec /usr/bin/python3 "$@"\n`;
  box.write("docker-world/python", python, 0o755);
}

const pull = (what = reference, environment: NodeJS.ProcessEnv = {}) =>
  box.run("pull_image.py", [what, tag, "keep", "t"], environment);
const calls = (word: string) => {
  const log = path.join(box.docker, "calls.log");
  const lines = fs.existsSync(log) ? fs.readFileSync(log, "utf8").split("\n") : [];
  return lines.filter((line) => line.includes(`"${word}"`));
};
const images = (home = "") => JSON.parse(box.read(`${home}docker-world/images.json`)) as Record<string, unknown>;

test("an image is pulled once, tagged once, and its engine is read", async () => {
  box.write("docker-world/registry", image);
  const first = await pull();
  expect([first.code, first.stderr]).toEqual([0, ""]);
  expect(JSON.parse(first.stdout)).toEqual({
    changed: true,
    id: "sha256:1",
    engine: versions,
    pull: { bytes: 0, seconds: expect.any(Number) as number },
  });
  // How it came stays known.
  const again = { ...(JSON.parse(first.stdout) as object), changed: false };
  expect(JSON.parse((await pull()).stdout)).toEqual(again);
  expect(calls("pull")).toEqual([`["pull", "${reference}"]`]);
  expect(images()[tag]).toEqual(image);
});

test("an image that was built on the head is taken by its id, and nothing is pulled", async () => {
  const id = `sha256:${"a".repeat(64)}`;
  expect(await pull(id)).toEqual({
    code: 1,
    stdout: "",
    stderr: expect.stringMatching(new RegExp(`^no image ${id} on the head: build or load it there `)) as string,
  });
  // Without a name it would go with our tag, in whichever of its runs.
  for (const names of [[], [tag], [tag, "dgx-spark-serving@sha256:0123"]]) {
    box.write("docker-world/images.json", Object.fromEntries([id, ...names].map((name) => [name, { ...image, id }])));
    expect(await pull(id)).toEqual({
      code: 1,
      stdout: "",
      stderr: `image ${id} has no name of its own, and would be removed with the deployment: docker tag ${id} NAME, on the head\n`,
    });
  }
  box.write("docker-world/images.json", { [id]: { ...image, id }, "my-vllm:latest": { ...image, id } });
  const { code, stdout } = await pull(id);
  expect([code, JSON.parse(stdout)]).toEqual([0, { changed: true, id, engine: versions, pull: null }]);
  expect(calls("pull")).toEqual([]);
});

test("what docker tells of bytes and layers is shown, and counted", async () => {
  box.write("docker-world/registry", image);
  const said = [
    `registry.example/vllm@sha256:${"0".repeat(64)}: Pulling from vllm`,
    "111111111111: Already exists",
    "222222222222: Pulling fs layer",
    "333333333333: Waiting",
    "\x1b[2A\x1b[2K\r222222222222: Downloading [=====>     ]  512.5kB/2.5MB\r\x1b[2B",
    "222222222222: Verifying Checksum",
    "222222222222: Extracting [==>  ]  65.54kB/2.5MB",
    "222222222222: Pull complete",
    "333333333333: Downloading  1.5GB/3GB",
    "333333333333: Retrying in 5 seconds",
    // As newer Dockers say it; and a small one, of which only this is told.
    "444444444444: Pulling layer fs [==>  ]  1MB/2MB",
    "555555555555: Extracting [=====>]  32kB/32kB",
  ].join("\\r\\n");
  box.write("docker-world/pull", `#!/bin/sh\nprintf '${said}\\r\\n'\nsleep 7\n`, 0o755);
  const { code, stdout, stderr } = await pull();
  expect(code).toBe(0);
  // A rate would be of what came while this one looked on, and there may be none.
  expect(stderr).toMatch(
    /^pull: 2 of 5 layers, 2\.5 MB unpacked: 1\.5 GB of 3\.0 GB(, \d+\.\d \w?B\/s, \d+ s left)?\n$/,
  );
  expect(JSON.parse(stdout)).toMatchObject({ pull: { bytes: 1_503_532_000 } });
}, 30_000);

/** A pull that lasts until it is let go. */
function lasting(): { letGo: () => void } {
  box.write(
    "docker-world/pull",
    '#!/bin/sh\nuntil [ -e "$FAKE_DOCKER/go" ] || ! kill -0 $PPID; do sleep 0.1; done\n',
    0o755,
  );
  return { letGo: () => box.write("docker-world/go", "") };
}
/** Processes of Docker's here in whose words this is. */
const pulling = (what = "") =>
  processes((id) => {
    const words = fs.readFileSync(`/proc/${id}/cmdline`, "utf8");
    return words.includes(box.home) && words.includes(what);
  });

/** Runs a step until its pull goes on, and kills it with all that belongs to it. */
async function interrupted(what = reference, environment: NodeJS.ProcessEnv = {}): Promise<void> {
  const before = calls("pull").length;
  const step = ["python3", "-B", path.resolve("scripts/remote/pull_image.py"), what, tag, "keep", "t"];
  const ended = box.exec(["setsid", "bash", "-c", 'echo $$ >"$HOME/step"; exec "$@"', "bash", ...step], environment);
  await until(() => calls("pull").length > before);
  process.kill(-Number(box.read("step")), "SIGKILL");
  expect(await ended).toMatchObject({ code: null, stdout: "" });
  expect(calls("pull").at(-1)).toContain(`"pull", "${what}"]`);
}

test("a pull goes on when nobody waits for it, and the next run takes it up", async () => {
  box.write("docker-world/registry", image);
  const { letGo } = lasting();
  await interrupted();
  const second = pull();
  letGo();
  const { code, stdout } = await second;
  expect([code, JSON.parse(stdout)]).toMatchObject([0, { changed: true, id: "sha256:1" }]);
  expect(calls("pull")).toHaveLength(1);
  expect(pulling()).toEqual([]);
}, 30_000);

test("a pull of another image than is wanted now is ended", async () => {
  box.write("docker-world/registry", image);
  const { letGo } = lasting();
  await interrupted("registry.example/former@sha256:0123");
  const second = pull();
  await until(() => calls("pull").length === 2);
  await until(() => pulling("former").length === 0);
  letGo();
  expect((await second).code).toBe(0);
  expect(Object.keys(images())).toEqual([reference, tag]);
}, 30_000);

test("a pull ends when an image is wanted that is here already", async () => {
  lasting();
  await interrupted("registry.example/former@sha256:0123");
  box.write("docker-world/images.json", { [reference]: image });
  expect(await pull()).toMatchObject({ code: 0 });
  await until(() => pulling().length === 0);
}, 30_000);

test("a pull whose keeper was killed ends with it, and its login goes with the next run, or with the deployment", async () => {
  box.write("docker-world/registry", inRegistry);
  const { letGo } = lasting();
  const kill = async () => {
    await interrupted(reference, login);
    expect(logins()).toHaveLength(1);
    const [state = ""] = fs.readdirSync(path.join(box.home, "keep/pull"));
    process.kill((JSON.parse(box.read(`keep/pull/${state}/state.json`)) as { pid: number }).pid, "SIGKILL");
    await until(() => pulling().length === 0);
    expect(logins()).toHaveLength(1);
  };
  await kill();
  fs.mkdirSync(path.join(box.home, "keep/nodes"));
  fs.cpSync(path.join(box.home, "keep"), path.join(box.home, "kept"), { recursive: true });
  expect(await box.run("workspace.sh", ["remove", "keep", "t", "remove"])).toMatchObject({ code: 0 });
  expect(logins()).toEqual([]);
  fs.cpSync(path.join(box.home, "kept"), path.join(box.home, "keep"), { recursive: true });
  await kill();
  letGo();
  expect(await pull(reference, login)).toMatchObject({ code: 0 });
  expect(logins()).toEqual([]);
}, 60_000);

test("another machine's pull, with a home that is this one's too, is left alone", async () => {
  const state = box.write("keep/pull/another/state.json", { pid: process.pid, reference: "another" });
  box.write("docker-world/registry", image);
  expect(await pull()).toMatchObject({ code: 0 });
  expect(JSON.parse(fs.readFileSync(state, "utf8"))).toEqual({ pid: process.pid, reference: "another" });
});

test("with the deployment's folder its pull ends", async () => {
  lasting();
  fs.mkdirSync(path.join(box.home, "keep/nodes"));
  await interrupted();
  expect(await box.run("workspace.sh", ["remove", "keep", "t", "remove"])).toMatchObject({ code: 0 });
  await until(() => pulling().length === 0);
  expect(fs.existsSync(path.join(box.home, "keep"))).toBe(false);
}, 30_000);

const login = { REGISTRY_USERNAME: "$oauthtoken", REGISTRY_PASSWORD: inRegistry.password };
const logins = () => fs.readdirSync("/dev/shm").filter((name) => name.startsWith("dgx-spark-serving-login-"));

test("a private registry gets the login, which is left nowhere", async () => {
  box.write("docker-world/registry", inRegistry);
  const refused = await pull();
  expect(refused).toMatchObject({ code: 1, stdout: "" });
  expect(refused.stderr).toBe(
    [
      "Error response from daemon: unauthorized: authentication required",
      `the pull of ${reference} failed: its last lines are above`,
      "  mend: is it spelled right? If it is private: pulumi config set --path registry.username NAME and pulumi config set " +
        "--secret registryPassword PASSWORD, or `docker login` on the head; then pulumi up",
      "",
    ].join("\n"),
  );
  expect(await pull(reference, login)).toMatchObject({ code: 0, stderr: "" });
  expect(JSON.parse(box.read("docker-world/login"))).toEqual(["registry.example", "$oauthtoken:it's $HOME"]);
  fs.rmSync(path.join(box.home, "docker-world/login"));
  expect(logins()).toEqual([]);
  for (const file of fs.readdirSync(box.home, { recursive: true, encoding: "utf8" })) {
    const place = path.join(box.home, file);
    if (file === "docker-world/registry" || !fs.statSync(place).isFile()) continue;
    expect([file, fs.readFileSync(place, "utf8").includes(inRegistry.password)]).toEqual([file, false]);
  }
});

test.each([
  ["vllm/vllm-openai@sha256:0123", "https://index.docker.io/v1/"],
  ["docker.io/vllm/vllm-openai@sha256:0123", "https://index.docker.io/v1/"],
  ["localhost/vllm@sha256:0123", "localhost"],
  ["10.0.0.1:5000/a/b@sha256:0123", "10.0.0.1:5000"],
])("the login for %s is its registry's", async (what, registry) => {
  box.write("docker-world/registry", image);
  await pull(what, { REGISTRY_USERNAME: "u", REGISTRY_PASSWORD: "p:q" });
  expect(JSON.parse(box.read("docker-world/login"))).toEqual([registry, "u:p:q"]);
});

test("an image that the registry lacks, or for another machine, is refused", async () => {
  expect(await pull()).toEqual({
    code: 1,
    stdout: "",
    stderr: `Error response from daemon: manifest for ${reference} not found\nthe pull of ${reference} failed: its last lines are above\n`,
  });
  box.write("docker-world/registry", { ...image, architecture: "s390x" });
  const result = await pull();
  expect(result).toMatchObject({ code: 1, stdout: "" });
  expect(result.stderr).toContain("the image is for s390x, this machine is ");
});

test.each([
  [{ vllm: "0.18.0" }, "no ray (`ray --version` would not be found)"],
  [{ ray: "2.60.0" }, "no vllm (`vllm --version` would not be found)"],
  [{}, "no vllm and no ray (`vllm --version` would not be found)"],
])("an image with %j alone is refused before anything is copied", async (commands, says) => {
  box.write("docker-world/registry", image);
  engine(commands);
  const { code, stdout, stderr } = await pull();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(`image ${tag} has ${says}: use one with vLLM and Ray in it.`);
});

test("an image without Python is refused, with what Docker said", async () => {
  box.write("docker-world/registry", image);
  box.write(
    "docker-world/python",
    "#!/bin/sh\necho 'exec: \"python3\": executable file not found' >&2\nexit 127\n",
    0o755,
  );
  expect(await pull()).toEqual({
    code: 1,
    stdout: "",
    stderr:
      `exec: "python3": executable file not found\nimage ${tag} does not tell what is in it: its python3, which vLLM and Ray ` +
      "run in, did not run in it (docker run: exit code 127); its words are above\n",
  });
});

test.each([
  ["2.51.2", "2.51.2"],
  ["unknown", "of unknown version"],
])("of a Ray %s, which may know no token, one is warned", async (ray, said) => {
  box.write("docker-world/registry", image);
  engine({ vllm: "0.11.0", ray: ray === "unknown" ? "" : ray });
  expect(await pull()).toMatchObject({
    code: 0,
    stderr: `warning: Ray ${said}: before 2.52 it knows no token, and whoever reaches its ports can run programs on the nodes (docs/decisions.md)\n`,
  });
});

test("what an image's programs say before is no version", async () => {
  box.write("docker-world/registry", image);
  engine({ vllm: "0.32.0", ray: "2.60.0" }, "echo CUDA version 13.0");
  expect(JSON.parse((await pull()).stdout)).toMatchObject({ engine: versions });
});

const worker = { name: "spark-2", user: "aurora", address: "192.168.200.13", port: 22, hostKey: "ssh-ed25519 AAAA" };
const node = `nodes/${worker.address}/`;

const copy = () =>
  box.run("copy_image.py", [tag, "keep", JSON.stringify(worker)], { FAKE_NODES: path.join(box.home, "nodes") });

/** Makes the worker, and the image on the head. */
function pair(): void {
  box.write("docker-world/images.json", { [tag]: image });
  box.write(`${node}docker-world/images.json`, {});
  box.write(`${node}keep/receive-image.sh`, fs.readFileSync("scripts/remote/receive-image.sh", "utf8"));
}

test("an image is copied once", async () => {
  pair();
  const bytes = `{"${tag}": {"id": "sha256:1", "architecture": "${architecture}"}}\n`.length;
  const first = await copy();
  expect([first.code, JSON.parse(first.stdout)]).toEqual([
    0,
    { changed: true, bytes, seconds: expect.any(Number) as number },
  ]);
  expect(first.stderr).toMatch(
    /^image to spark-2: about 1\.0 MB over the fabric\nimage to spark-2: \d+\.\d B sent, Docker unpacks it there\nimage on spark-2: \d+\.\d B in \d+ s\n$/,
  );
  expect(images(node)).toEqual({ [tag]: image });
  const second = await copy();
  expect([second.code, second.stderr, JSON.parse(second.stdout)]).toMatchObject([0, "", { changed: false, bytes: 0 }]);
  expect(box.read(`${node}commands.log`)).toBe(`layers ${tag}\nload\nlayers ${tag}\nlayers ${tag}\n`);
});

test("a worker that can't be reached, or takes no image, is named with what it said", async () => {
  pair();
  box.write(`${node}refused`, "");
  expect(await copy()).toEqual({
    code: 1,
    stdout: "",
    stderr:
      "ssh: connect to host: Connection refused\n" +
      "can't reach spark-2 from the head over the fabric: aurora@192.168.200.13:22. If a key or file of ours was changed by hand on either: pulumi up --replace '**image-*'\n",
  });
  fs.rmSync(path.join(box.home, node, "refused"));
  box.write(`${node}docker-world/full`, "write /layer.tar: no space left on device");
  const full = await copy();
  expect(full).toMatchObject({ code: 1, stdout: "" });
  expect(full.stderr).toMatch(
    /^write \/layer\.tar: no space left on device\nthe image could not be copied to spark-2: the last lines are above$/m,
  );
  expect(images(node)).toEqual({});
});

test("every byte arrives, however slowly it is read, and what a shell says first is no layer", async () => {
  pair();
  const large = { ...image, padding: "x".repeat(5_000_000) };
  box.write("docker-world/images.json", { [tag]: large });
  const receive = fs.readFileSync("scripts/remote/receive-image.sh", "utf8");
  box.write(`${node}keep/receive-image.sh`, receive.replace("case ", "echo Welcome\nsleep 1\ncase "));
  expect((await copy()).code).toBe(0);
  expect(images(node)).toEqual({ [tag]: large });
  expect(JSON.parse((await copy()).stdout)).toMatchObject({ changed: false, bytes: 0 });
});

test("half an image is no image", async () => {
  pair();
  box.write("docker-world/broken", "Error response from daemon: unexpected EOF");
  const { code, stdout, stderr } = await copy();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain("Error response from daemon: unexpected EOF\n");
});

test("an image that is gone from the head is named with its cure", async () => {
  pair();
  box.write("docker-world/images.json", {});
  expect(await copy()).toEqual({
    code: 1,
    stdout: "",
    stderr: `image ${tag} is not on the head any more. Bring it back: pulumi up --replace '**image-*'\n`,
  });
});

test("the fabric key gets layers and loads, and nothing else", async () => {
  box.write("docker-world/images.json", { t: image });
  const ask = (command: string) => box.run("receive-image.sh", [], { SSH_ORIGINAL_COMMAND: command });
  expect(await ask("layers t")).toEqual({ code: 0, stdout: '["sha256:1"]\n', stderr: "" });
  expect(await ask("layers u")).toEqual({ code: 0, stdout: "absent\n", stderr: "" });
  for (const command of ["", "sh", "load; reboot", "layers"]) {
    expect(await ask(command)).toEqual({ code: 1, stdout: "", stderr: "this key may only copy images\n" });
  }
});

import * as fs from "node:fs";
import * as net from "node:net";
import * as path from "node:path";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Sandbox, until } from "./sandbox";

let box: Sandbox;
let closers: (() => void)[];
beforeEach(() => {
  box = new Sandbox();
  box.write("docker-world/images.json", { [image]: { id: "sha256:1", architecture: "any" } });
  closers = [];
});
afterEach(() => {
  for (const close of closers) close();
  box.remove();
});

const changed = (is: boolean) => ({ code: 0, stdout: `{"changed": ${String(is)}}\n`, stderr: "" });
const image = "dgx-spark-serving:lab-0123456789ab";
const enough = ["0", "0"];

/** A listener of this process. */
async function listen() {
  let connections = 0;
  const server = net.createServer(() => (connections += 1));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    server.close();
  };
  closers.push(close);
  return { port: String((server.address() as AddressInfo).port), close, connections: () => connections };
}

/** The machine's memory, in GiB, as prepare_container.py is to see it. */
function memory(total: number, available: number): void {
  const kibibytes = (gib: number) => String(gib * 1024 ** 2);
  const file = box.write(
    "meminfo.new",
    `MemTotal:       ${kibibytes(total)} kB\nMemFree:        1 kB\nMemAvailable:   ${kibibytes(available)} kB\n`,
  );
  fs.renameSync(file, `${box.home}/meminfo`);
}

/** What it imports. */
const beside = { PYTHONPATH: path.resolve("scripts/remote") };

/**
 * Runs prepare_container.py with a shorter wait, and the sandbox's memory where it was given one.
 *
 * @param places where it looks for programs beside the sandbox's `bin`, then its whole PATH
 */
function prepare(args: string[], waitSeconds = 20, places?: string) {
  let source = fs.readFileSync("scripts/remote/prepare_container.py", "utf8");
  const replace = (from: string, to: string) => {
    expect(source.split(from)).toHaveLength(2);
    source = source.replace(from, to);
  };
  replace("WAIT_SECONDS = 20", `WAIT_SECONDS = ${String(waitSeconds)}`);
  if (fs.existsSync(`${box.home}/meminfo`)) replace("/proc/meminfo", `${box.home}/meminfo`);
  if (places !== undefined) {
    replace("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", places);
    return box.exec(["/usr/bin/python3", "-c", source, ...args], { ...beside, PATH: `${box.home}/bin` });
  }
  return box.exec(["python3", "-c", source, ...args], beside);
}

/** Counts the looks at the ports: a line of ss.log when one is over. */
function countLooks(): () => number {
  box.write(
    "bin/ss",
    '#!/bin/sh\nPATH=/usr/bin:/bin:/usr/sbin:/sbin ss "$@"\ncode=$?\necho >>"$HOME/ss.log"\nexit $code\n',
    0o755,
  );
  return () => (fs.existsSync(`${box.home}/ss.log`) ? box.read("ss.log").length : 0);
}

const containers = () => Object.keys(JSON.parse(box.read("docker-world/containers.json")) as object);
const calls = () =>
  box
    .read("docker-world/calls.log")
    .trim()
    .split("\n")
    .map((line) => (JSON.parse(line) as string[])[0]);

test("a leftover of ours is removed, once, and nothing else", async () => {
  box.write("docker-world/containers.json", {
    ours: { status: "running", deployment: "lab" },
    "ours-2": { status: "running", deployment: "lab" },
  });
  expect(await box.run("prepare_container.py", ["ours", "lab", image, ...enough])).toEqual(changed(true));
  expect(await box.run("prepare_container.py", ["ours", "lab", image, ...enough])).toEqual(changed(false));
  expect(containers()).toEqual(["ours-2"]);
  expect(calls()).toEqual(["image", "container", "rm", "image", "container"]);
});

test.each([
  ["without our label", {}],
  ["of another deployment", { deployment: "lab2" }],
])("a stranger %s is refused at once, and stays", async (_, labels) => {
  box.write("docker-world/containers.json", { theirs: { status: "running", ...labels } });
  const started = Date.now();
  expect(await box.run("prepare_container.py", ["theirs", "lab", image, ...enough])).toEqual({
    code: 1,
    stdout: "",
    stderr:
      "container theirs is there already and is not of deployment lab: rename or remove it (docker rm -f theirs)\n",
  });
  expect(Date.now() - started).toBeLessThan(5000);
  expect(containers()).toEqual(["theirs"]);
  expect(calls()).toEqual(["image", "container"]);
});

test("an image that was removed is told with what brings it back, and the leftover stays", async () => {
  box.write("docker-world/images.json", {});
  box.write("docker-world/containers.json", { ours: { status: "running", deployment: "lab" } });
  expect(await box.run("prepare_container.py", ["ours", "lab", image, ...enough])).toEqual({
    code: 1,
    stdout: "",
    stderr:
      `container ours is not made: image ${image} is no longer on this node. Bring it back: ` +
      "pulumi up --replace '**image-*'\n",
  });
  expect(containers()).toEqual(["ours"]);
});

test("a leftover that can't be removed is told as Docker tells it", async () => {
  fs.rmSync(`${box.home}/bin/docker`);
  box.write(
    "bin/docker",
    '#!/bin/sh\n[ "$2" = inspect ] && echo lab && exit\necho "Error response: device busy" >&2\nexit 1\n',
    0o755,
  );
  expect(await box.run("prepare_container.py", ["ours", "lab", image, ...enough])).toEqual({
    code: 1,
    stdout: "",
    stderr: "Error response: device busy\n",
  });
});

test.each([
  ["docker", "Cannot connect to the Docker daemon", `Docker does not say whether image ${image} is there: `],
  ["ss", "Cannot open netlink socket", "which ports are taken is not known: "],
])("a %s that does not answer is no good news", async (program, said, told) => {
  fs.rmSync(`${box.home}/bin/${program}`, { force: true });
  box.write(`bin/${program}`, `#!/bin/sh\necho "${said}" >&2\nexit 1\n`, 0o755);
  expect(await prepare(["ours", "lab", image, ...enough, "1"], 0)).toEqual({
    code: 1,
    stdout: "",
    stderr: `${told}${said}\n`,
  });
});

/** An `ss` or a `docker`, in the given folder of the sandbox, that prints this. */
function prints(file: string, stdout: string): void {
  fs.rmSync(`${box.home}/${file}`, { force: true });
  const content = box.write(`${file}.stdout`, stdout);
  box.write(file, `#!/bin/sh\nexec /bin/cat "${content}"\n`, 0o755);
}

test.each(["docker", "ss"])("without %s it is told in a line", async (program) => {
  prints("bin/docker", "lab\n");
  prints("bin/ss", "");
  fs.rmSync(`${box.home}/bin/${program}`);
  expect(await prepare(["ours", "lab", image, ...enough, "1"], 0, `${box.home}/nowhere`)).toEqual({
    code: 1,
    stdout: "",
    stderr: `${program} can't be run: No such file or directory\n`,
  });
});

test("programs are found outside of PATH too", async () => {
  prints("bin/docker", "lab\n");
  prints("sbin/ss", "");
  expect(await prepare(["ours", "lab", image, ...enough, "1"], 0, `${box.home}/sbin`)).toEqual(changed(true));
});

const listener = (address: string, peer = "0.0.0.0:*") =>
  `LISTEN 0 4096 ${address} ${peer} uid:1 ino:5 sk:3 cgroup:/x <->`;

// As preflight judges them: what a line of `ss` is to Ray's container, and to the server's.
test.each<[string, boolean, boolean]>([
  [listener("0.0.0.0:8000"), true, true],
  [listener("*:8000", "*:*"), true, true],
  [listener("[::]:8000", "[::]:*"), true, true],
  [listener(":::8000", ":::*"), true, true],
  [listener("127.0.0.1:8000"), true, true],
  [listener("127.0.0.53%lo:8000"), true, true],
  [listener("10.1.230.180:8000"), true, true],
  ["LISTEN 0 128 0.0.0.0:8000 0.0.0.0:*", true, true],
  // A server on IPv4 stands beside one on an address of IPv6.
  [listener("[::1]:8000", "[::]:*"), true, false],
  [listener("[fe80::1]%enP7s7:8000", "[::]:*"), true, false],
  [listener("0.0.0.0:18000"), false, false],
  // Cut, or none at all.
  ["LISTEN 0 4096 0.0.0.0:8000", false, false],
  ["LISTEN 0 4096 0.0.0.0:8000 0.0.0.", false, false],
  ["LISTEN 0", false, false],
  ["LISTEN 0 4096 nonsense *:*", false, false],
  ["ESTAB 0 0 10.0.0.1:8000 10.0.0.2:5000", false, false],
  ["State Recv-Q Send-Q Local Address:Port Peer Address:Port", false, false],
])("the listener %j", async (line, toRay, toServer) => {
  prints("bin/ss", `${listener("0.0.0.0:22")}\n${line}\n\n`);
  for (const [role, isTaken] of [
    ["ray", toRay],
    ["server", toServer],
  ] as const) {
    const name = `dgx-spark-dev-${role}`;
    const refused = `container ${name} is not made: a port that the container needs is taken:\n${line}\n`;
    expect(await prepare([name, "lab", image, ...enough, "8000"], 0)).toEqual(
      isTaken ? { code: 1, stdout: "", stderr: refused } : changed(false),
    );
  }
});

test("a taken port is refused after the wait, with its owner, who is not disturbed", async () => {
  const [taken, other] = [await listen(), await listen()];
  const looks = countLooks();
  const started = Date.now();
  const { code, stdout, stderr } = await prepare(["server", "lab", image, ...enough, "1", taken.port], 1.5);
  expect(Date.now() - started).toBeGreaterThan(1500);
  expect([code, stdout]).toEqual([1, ""]);
  const [first, owner, ...rest] = stderr.split("\n");
  expect(first).toBe("container server is not made: a port that the container needs is taken:");
  expect(owner).toMatch(new RegExp(`^LISTEN .* 127\\.0\\.0\\.1:${taken.port} .*pid=${String(process.pid)},`));
  expect(rest).toEqual([""]);
  expect(stderr).not.toContain(`:${other.port} `);
  expect(looks()).toBeGreaterThan(1);
  expect(taken.connections()).toBe(0);
});

test("a port that is freed during the wait passes", async () => {
  const taken = await listen();
  const looks = countLooks();
  const ended = prepare(["server", "lab", image, ...enough, taken.port]);
  await until(() => looks() > 0);
  taken.close();
  expect(await ended).toEqual(changed(false));
  expect(looks()).toBeGreaterThan(1);
});

test("listeners on other ports are in nobody's way", async () => {
  const { port } = await listen();
  const looks = countLooks();
  const others = [port.slice(0, -1), `1${port}`, port.slice(1)];
  expect(await prepare(["server", "lab", image, ...enough, ...others], 0)).toEqual(changed(false));
  expect(await prepare(["server", "lab", image, ...enough], 0)).toEqual(changed(false));
  expect(looks()).toBe(2);
});

test.each([
  ["0.9", "0", "107.7"],
  ["0.5", String(2 ** 40), "1024.0"],
  ["0", String(90.25 * 2 ** 30), "90.2"],
])("too little memory for the share %s and %s bytes is refused with its numbers", async (share, bytes, needed) => {
  memory(119.6875, 90);
  expect(await prepare(["server", "lab", image, share, bytes], 0)).toEqual({
    code: 1,
    stdout: "",
    stderr:
      `container server is not made: 90.0 GiB of 119.7 GiB memory are available, and the engine takes ${needed} GiB: ` +
      "end what holds them (ps aux --sort=-rss | head), or lower server.gpuMemoryUtilization\n",
  });
});

test.each([
  ["0", "0"],
  ["0.75", "0"],
  ["0.75", String(90 * 2 ** 30)],
])("enough memory for the share %s and %s bytes passes", async (share, bytes) => {
  memory(120, 90);
  expect(await prepare(["server", "lab", image, share, bytes], 0)).toEqual(changed(false));
});

test("memory that is given back during the wait passes", async () => {
  memory(120, 10);
  const looks = countLooks();
  const ended = prepare(["server", "lab", image, "0.9", "0"]);
  await until(() => looks() > 0);
  // The first look at the memory follows that at the ports.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  memory(120, 119);
  expect(await ended).toEqual(changed(false));
  expect(looks()).toBeGreaterThan(1);
});

test("this machine's memory is read where there is no other", async () => {
  expect(await prepare(["server", "lab", image, "0", "0"], 0)).toEqual(changed(false));
  const { code, stderr } = await prepare(["server", "lab", image, "1", "0"], 0);
  expect([code, stderr]).toEqual([1, expect.stringMatching(/: \d+\.\d GiB of \d+\.\d GiB memory are available, /)]);
});

import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { readFacts } from "../../components/preflight/readFacts";
import { type Ended, processes, Sandbox } from "./sandbox";

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

interface Output {
  code: number | null;
  stdout: string;
  stderr: string;
}
interface Gathered extends Record<string, unknown> {
  commands: Record<string, Output>;
  files: Record<string, string | null>;
}

const tools = ["date", "ip", "ss", "nvidia-smi", "nvcc", "ibv_devinfo", "docker"];
const serial = "1580000000000";
const container = "c".repeat(64);
const gone = "d".repeat(64);

/** The source of a script with some of its text replaced; all of that must be there. */
function patched(script: string, ...changes: [string | RegExp, string][]): string {
  return changes.reduce(
    (text, [from, to]) => {
      const changed = text.replaceAll(from, to);
      if (changed === text) throw new Error(`${script} has no ${String(from)}`);
      return changed;
    },
    fs.readFileSync(`scripts/remote/${script}`, "utf8"),
  );
}

/** Gives the machine a program; its lines are those of a shell script. */
function tool(name: string, ...lines: string[]): void {
  fs.rmSync(path.join(box.home, "bin", name), { force: true });
  box.write(`bin/${name}`, ["#!/bin/sh", ...lines, ""].join("\n"), 0o755);
}

/** A Spark of which nothing is the test machine's but its clock, name and disks: files and programs are the sandbox's. */
function machine(): void {
  box.write("root/etc/os-release", 'PRETTY_NAME="Ubuntu 24.04.4 LTS"\n');
  box.write(
    "root/etc/dgx-release",
    `DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\nDGX_SERIAL_NUMBER="${serial}"\nDGX_OTA_VERSION="7.4.0"\n`,
  );
  box.write("root/proc/meminfo", "MemTotal:       1000 kB\nMemAvailable:    600 kB\n");
  box.write("root/proc/sys/kernel/osrelease", "6.14.0-1013-nvidia\n");
  box.write("root/proc/4711/cgroup", `0::/system.slice/docker-${container}.scope\n`);
  box.write("root/proc/4712/cgroup", "0::/user.slice\n");
  box.write(`root/sys/fs/cgroup/system.slice/docker-${container}.scope/memory.stat`, "file 7\nanon 4096\n");
  box.write("root/sys/class/dmi/id/product_name", "NVIDIA_DGX_Spark\n");
  box.write("root/sys/class/net/enp1s0f0np0/speed", "200000\n");
  const device = "root/sys/class/infiniband/rocep1s0f0";
  box.write(`${device}/fw_ver`, "28.45.4028\n");
  box.write(`${device}/device/net/enp1s0f0np0/x`, "");
  box.write(`${device}/ports/1/state`, "4: ACTIVE\n");
  box.write(`${device}/ports/1/rate`, "200 Gb/sec (2X NDR)\n");
  box.write(`${device}/ports/1/gids/0`, "0000:0000:0000:0000:0000:0000:0000:0000\n");
  box.write(`${device}/ports/1/gids/3`, "0000:0000:0000:0000:0000:ffff:c0a8:c80b\n");
  box.write(`${device}/ports/1/gid_attrs/types/3`, "RoCE v2\n");
  box.write(`${device}/ports/1/gid_attrs/ndevs/3`, "enp1s0f0np0\n");
  tool("date", "echo 1000.5");
  tool("ip", `echo '[]'`);
  tool("ss", ":");
  tool("nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'");
  tool("ibv_devinfo", ":");
  tool(
    "nvidia-smi",
    `case "$1" in --query-compute-apps*) printf '4711, VLLM::Worker, 100\\n4712, python3, 5\\n4713, ended, 5\\n' ;; esac`,
  );
  tool(
    "docker",
    `case "$1" in`,
    `info) echo '{"version":"28.3.3","root":"${box.home}","runtimes":{"nvidia":{},"runc":{}}}' ;;`,
    `ps) echo '{"id":"${container}","name":"engine","state":"running","deployment":"lab"}'`,
    `  echo '{"id":"${gone}","name":"old","state":"exited","deployment":""}' ;;`,
    `images) echo vllm:1 ;;`,
    "esac",
  );
}

/** More than any disk has: the images are asked for. */
const imageBytes = "1e18";

/** facts.py with the sandbox as its whole machine: its own folders for /etc, /proc and /sys, and no programs but its own. */
async function onMachine(...changes: [string | RegExp, string][]): Promise<Ended> {
  const root = path.join(box.home, "root");
  const source = patched(
    "facts.py",
    [/"\/(?=(?:etc|proc|sys)\b)/g, `"${root}/`],
    [/^PLACES = .*/gm, `PLACES = "${box.home}/nowhere"`],
    ...changes,
  );
  const ended = await box.exec(["/usr/bin/python3", "-c", source, path.join(box.home, "model"), imageBytes], {
    PATH: path.join(box.home, "bin"),
  });
  return { ...ended, stdout: ended.stdout.replaceAll(`${root}/`, "/") };
}

function gathered({ code, stdout, stderr }: Ended): Gathered {
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout.trimEnd().split("\n")).toHaveLength(1);
  return JSON.parse(stdout) as Gathered;
}

const facts = ({ stdout }: Ended) => readFacts(stdout, { sentAt: 1000, answeredAt: 1001 });

/** All that is in a folder: names, times, and contents. */
function contents(folder: string): string[] {
  return fs
    .readdirSync(folder, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const { mtimeMs, ctimeMs, size } = fs.lstatSync(path.join(folder, name));
      return `${name} ${String(mtimeMs)} ${String(ctimeMs)} ${String(size)}`;
    });
}

test("the test machine's facts are its own", async () => {
  const ended = await box.run("facts.py", [path.join(box.home, "not/there yet"), imageBytes]);
  gathered(ended);
  const read = readFacts(ended.stdout, { sentAt: 0, answeredAt: Date.now() / 1000 + 60 });
  expect(read).toMatchObject({
    hostname: os.hostname(),
    kernel: os.release(),
    clockSkewSeconds: 0,
    memory: { totalBytes: os.totalmem() },
    modelDisk: { path: path.join(box.home, "not/there yet") },
    // The fake docker knows none of the questions.
    docker: { version: null, hasNvidiaRuntime: null, failure: "down" },
    imageDisk: null,
    containers: [],
    images: [],
  });
  const { bsize, blocks } = fs.statfsSync(box.home);
  expect(read.modelDisk?.totalBytes).toBe(bsize * blocks);
  expect(read.interfaces.find(({ name }) => name === "lo")).toMatchObject({
    up: true,
    addresses: expect.arrayContaining([{ address: "127.0.0.1", prefix: 8 }]) as unknown,
  });
});

test("a machine's facts are gathered without a change of it, the same twice, without its serial number", async () => {
  machine();
  const before = contents(box.home);
  const ended = await onMachine();
  const [first, second] = [gathered(ended), gathered(await onMachine())];
  expect(contents(box.home)).toEqual(before);
  // The room on the test machine's disks changes by itself.
  const disks = { imageDisk: null, modelDisk: null };
  expect({ ...second, ...disks }).toEqual({ ...first, ...disks });

  expect(ended.stdout).not.toContain(serial);
  expect(ended.stdout).not.toMatch(/serial/i);
  expect(first.files).toEqual({
    "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.4 LTS"\n',
    "/etc/dgx-release": 'DGX_NAME="DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.4.0"\n',
    "/proc/meminfo": "MemTotal:       1000 kB\nMemAvailable:    600 kB\n",
    "/proc/sys/kernel/osrelease": "6.14.0-1013-nvidia\n",
    "/sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n",
  });
  expect(first).toMatchObject({
    hostname: os.hostname(),
    architecture: os.machine(),
    speeds: { enp1s0f0np0: "200000\n" },
    rdma: [
      {
        name: "rocep1s0f0",
        firmware: "28.45.4028\n",
        netdevs: ["enp1s0f0np0"],
        ports: [
          {
            port: "1",
            state: "4: ACTIVE\n",
            rate: "200 Gb/sec (2X NDR)\n",
            gids: [
              {
                index: "3",
                gid: "0000:0000:0000:0000:0000:ffff:c0a8:c80b",
                type: "RoCE v2\n",
                netdev: "enp1s0f0np0\n",
              },
            ],
          },
        ],
      },
    ],
    imageDisk: { path: box.home },
    modelDisk: { path: path.join(box.home, "model") },
    containerOfProcess: { "4711": container, "4712": "" },
    containerMemoryBytes: { [container]: 4096, [gone]: null },
  });
  expect(first["containerOfProcess"]).toEqual({ "4711": container, "4712": "" });
  expect(facts(ended)).toMatchObject({
    dgxRelease: "7.4.0",
    clockSkewSeconds: 0,
    memory: { totalBytes: 1_024_000, availableBytes: 614_400, swapTotalBytes: null },
    docker: { version: "28.3.3", hasNvidiaRuntime: true, failure: null, complaint: null },
    gpuProcesses: [
      { pid: 4711, container },
      { pid: 4712, container: "" },
      { pid: 4713, container: null },
    ],
    containers: [
      { id: container, name: "engine", running: true, deployment: "lab", memoryBytes: 4096 },
      { id: gone, name: "old", running: false, deployment: null, memoryBytes: null },
    ],
    images: ["vllm:1"],
  });
});

test("a serial number in any spelling, and on the last line, is left out", async () => {
  machine();
  box.write("root/etc/dgx-release", `  Serial Number: ${serial}\nDGX_NAME="DGX Spark"\nsystem_serial=${serial}`);
  expect(gathered(await onMachine()).files["/etc/dgx-release"]).toBe('DGX_NAME="DGX Spark"\n');
});

test("without a single program or file the rest is there", async () => {
  fs.rmSync(path.join(box.home, "bin/docker"));
  const ended = await onMachine();
  const { commands, files, ...rest } = gathered(ended);
  expect(Object.keys(commands)).toHaveLength(11);
  for (const output of Object.values(commands)) {
    expect(output).toEqual({ code: null, stdout: "", stderr: "No such file or directory" });
  }
  expect(Object.values(files)).toEqual(Array(5).fill(null));
  expect(rest).toMatchObject({ hostname: os.hostname(), speeds: {}, rdma: [], imageDisk: null });
  expect(rest).toMatchObject({ containerOfProcess: {}, containerMemoryBytes: {} });
  expect(facts(ended)).toMatchObject({
    gpu: null,
    interfaces: [],
    listeners: [],
    docker: { version: null, hasNvidiaRuntime: null, failure: "missing" },
  });
  expect(facts(ended).notes).toContain("the GPU: not known (no program nvidia-smi)");
});

test.each(tools)("%s failing is kept as it is, and changes nothing else", async (name) => {
  machine();
  const { images, ...others } = gathered(await onMachine()).commands;
  // Without Docker's folder it is not known whether they matter.
  const whole = name === "docker" ? others : { ...others, images };
  tool(name, "echo half", "echo 'it is broken' >&2", "exit 3");
  const { commands } = gathered(await onMachine());
  const broken = Object.keys(whole).filter((command) => commands[command]?.code !== 0);
  expect(broken).not.toEqual([]);
  const failure = { code: 3, stdout: "half\n", stderr: "it is broken\n" };
  expect(commands).toEqual({ ...whole, ...Object.fromEntries(broken.map((command) => [command, failure])) });
});

test("Docker is asked for its images only where the disk may be short of room for one", async () => {
  machine();
  const short = await onMachine();
  expect(gathered(short).commands["images"]).toMatchObject({ stdout: "vllm:1\n" });
  const roomy = await onMachine(["sys.argv[2]", '"1"']);
  expect(Object.keys(gathered(roomy).commands)).not.toContain("images");
  expect(facts(roomy)).toMatchObject({ images: [], notes: facts(short).notes });
});

test("programs speak English, are asked nothing, and are found outside of PATH too", async () => {
  machine();
  tool("nvcc", 'read -r line; echo "$LC_ALL $?"');
  fs.renameSync(path.join(box.home, "bin"), path.join(box.home, "nowhere"));
  fs.mkdirSync(path.join(box.home, "bin"));
  expect(gathered(await onMachine()).commands["nvcc"]).toEqual({ code: 0, stdout: "C 1\n", stderr: "" });
});

test("programs that hang, with what they started, hold up nothing and are ended", async () => {
  machine();
  tool("nvidia-smi", "echo half", `/bin/sleep 61.5 & echo $! >>"$HOME/pids"; wait`);
  const started = Date.now();
  const ended = await box.exec(["python3", "-c", patched("facts.py"), path.join(box.home, "model"), imageBytes], {
    PATH: `${path.join(box.home, "bin")}:/usr/bin:/bin`,
  });
  // The script's own limit is 4 s; the rest is Python's start on a busy machine.
  expect(Date.now() - started).toBeLessThan(8000);
  const { commands } = gathered(ended);
  for (const each of ["nvidiaSmi", "gpuQuery", "computeApps"]) {
    expect(commands[each]).toEqual({ code: null, stdout: "", stderr: "no answer within 4 s" });
  }
  expect(commands["nvcc"]?.code).toBe(0);
  const pids = box.read("pids").trim().split("\n");
  expect(pids).toHaveLength(3);
  expect(processes((id) => pids.includes(id))).toEqual([]);
  expect(facts(ended).notes).toContain("the GPU: not known (no answer within 4 s)");
});

test("what can't be killed, a name server and a disk that hang hold up nothing", async () => {
  machine();
  tool("nvidia-smi", "exec /bin/sleep 10");
  const started = Date.now();
  // A hanging driver stands in the kernel and is deaf to signals: here the signal is never sent.
  const deaf = "import os, socket, time\nos.killpg = lambda *_: None\nsocket.getaddrinfo = lambda *_: time.sleep(10)\n";
  const result = gathered(
    await onMachine(
      [/^import json$/gm, `${deaf}os.statvfs = lambda *_: time.sleep(10)\nimport json`],
      ["LIMIT_SECONDS = 4", "LIMIT_SECONDS = 0.5"],
    ),
  );
  expect(Date.now() - started).toBeLessThan(6000);
  expect(result).toMatchObject({ resolved: null, imageDisk: null, modelDisk: null });
  expect(result.commands["nvidiaSmi"]?.code).toBeNull();
  expect(result.commands["nvcc"]?.code).toBe(0);
});

test.each<[string, string, string[] | null]>([
  ["resolves to nothing", "raise socket.gaierror(-2, 'Name or service not known')", []],
  ["is known to a name server that hangs", "time.sleep(10)", null],
  ["resolves", "return [(2, 1, 6, '', ('127.0.1.1', 0))]", ["127.0.1.1"]],
])("an own name that %s", async (_, body, resolved) => {
  machine();
  const patch = `import socket, time\ndef look_up(*_):\n    ${body}\nsocket.getaddrinfo = look_up\n`;
  const ended = await onMachine([/^import json$/gm, `${patch}import json`], ["LIMIT_SECONDS = 4", "LIMIT_SECONDS = 2"]);
  expect(gathered(ended)).toMatchObject({ resolved });
  expect(facts(ended).hostnameAddresses).toEqual(resolved);
});

test("a user without rights to Docker is told from a daemon that is down", async () => {
  machine();
  const denied =
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: " +
    'Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.51/info": dial unix /var/run/docker.sock: connect: permission denied';
  tool("docker", `echo '{"version":"","root":"","runtimes":null}'`, `echo '${denied}' >&2`, "exit 1");
  const ended = await onMachine();
  expect(gathered(ended).commands["dockerInfo"]).toMatchObject({ code: 1, stderr: `${denied}\n` });
  expect(facts(ended)).toMatchObject({
    docker: { version: null, hasNvidiaRuntime: null, failure: "denied" },
    containers: [],
    images: [],
    imageDisk: null,
  });
});

test("10 MB of output are cut, and a long complaint to its end", async () => {
  machine();
  tool("ss", "/usr/bin/env -i /bin/sh -c 'head -c 10000000 /dev/zero | tr \"\\\\0\" x'");
  tool("nvcc", "/usr/bin/env -i /bin/sh -c 'head -c 10000000 /dev/zero | tr \"\\\\0\" y; echo end' >&2", "exit 1");
  const { commands } = gathered(await onMachine());
  expect(commands["listeners"]).toEqual({ code: 0, stdout: "x".repeat(400_000), stderr: "" });
  expect(commands["nvcc"]).toEqual({ code: 1, stdout: "", stderr: `${"y".repeat(496)}end\n` });
});

test("a list of 300 interfaces is not cut", async () => {
  machine();
  const address = { family: "inet", local: "10.0.0.1", prefixlen: 24, scope: "global", label: "x".repeat(500) };
  const list = Array.from({ length: 300 }, (_, index) => ({ ifname: `veth${String(index)}`, addr_info: [address] }));
  box.write("interfaces", list);
  tool("ip", `exec /bin/cat "$HOME/interfaces"`);
  expect(facts(await onMachine()).interfaces).toHaveLength(300);
});

test("what is no UTF-8, and no text, is kept as far as it can be", async () => {
  machine();
  tool("nvcc", String.raw`printf '\377\376 release 13.0\000\n\303'`, String.raw`printf '\200' >&2`);
  fs.writeFileSync(path.join(box.home, "root/etc/os-release"), Buffer.from([0x41, 0xff, 0x0a]));
  const { commands, files } = gathered(await onMachine());
  expect(commands["nvcc"]).toEqual({ code: 0, stdout: "\ufffd\ufffd release 13.0\0\n\ufffd", stderr: "\ufffd" });
  expect(files["/etc/os-release"]).toBe("A\ufffd\n");
});

/** What probe.py says of some scripts, given as [source, ...arguments]. */
async function probe(scripts: Record<string, string[]>, limit: string | null = null, more: NodeJS.ProcessEnv = {}) {
  const questions = Object.entries(scripts).map(([name, [source, ...args]]) => [name, { source, args }]);
  box.write("questions", Object.fromEntries(questions));
  const source =
    limit === null ? patched("probe.py") : patched("probe.py", ["LIMIT_SECONDS = 20", `LIMIT_SECONDS = ${limit}`]);
  const ended = await box.exec(["sh", "-c", 'exec python3 -c "$0" <questions', source], more);
  expect([ended.code, ended.stderr]).toEqual([0, ""]);
  return JSON.parse(ended.stdout) as Record<string, Output>;
}

test("scripts run at once, and how each ended is kept", async () => {
  const timed = "import time; a = time.time(); time.sleep(1.5); print(a, time.time())";
  const results = await probe({
    first: [timed],
    second: [timed],
    failing: ["import sys; print(sys.argv[1:]); sys.exit('no: é')", "a b", "$HOME", "'"],
    signalled: ["import os; os.kill(os.getpid(), 15)"],
    reading: ["import sys; print(repr(sys.stdin.read()))"],
  });
  const [first = [], second = []] = ["first", "second"].map((name) => results[name]?.stdout.split(" ").map(Number));
  expect(Math.max(first[0] ?? NaN, second[0] ?? NaN)).toBeLessThan(Math.min(first[1] ?? NaN, second[1] ?? NaN));
  expect(results).toMatchObject({ first: { code: 0, stderr: "" }, second: { code: 0, stderr: "" } });
  expect(results["failing"]).toEqual({ code: 1, stdout: `['a b', '$HOME', "'"]\n`, stderr: "no: é\n" });
  expect(results["signalled"]).toEqual({ code: -15, stdout: "", stderr: "" });
  expect(results["reading"]).toEqual({ code: 0, stdout: "''\n", stderr: "" });
});

test("a script without text is answered by its name alone, which the operator's greeting goes by", async () => {
  expect(await probe({ "6e6f6e6365": [""] })).toEqual({ "6e6f6e6365": { code: 0, stdout: "", stderr: "" } });
});

test("no script waits for another one to be read, whatever it prints", async () => {
  const results = await probe({
    slow: ["import time; time.sleep(2); print(time.time())"],
    talkative: ["import sys, time; print('x' * 1000000); sys.stdout.flush(); print(time.time())"],
    bytes: [String.raw`import sys; sys.stdout.buffer.write(b'\xff\n')`],
  });
  const [text = "", end] = results["talkative"]?.stdout.split("\n") ?? [];
  expect(text).toHaveLength(1_000_000);
  expect(Number(end)).toBeLessThan(Number(results["slow"]?.stdout));
  expect(results["bytes"]).toEqual({ code: 0, stdout: "\ufffd\n", stderr: "" });
});

test("scripts that hang are ended together, with what they started, and what they said is kept", async () => {
  const hanging =
    "import os, subprocess, sys, time\n" +
    "child = subprocess.Popen(['sleep', '62.5'])\n" +
    "print(os.getpid(), child.pid, flush=True)\n" +
    "print('so far', file=sys.stderr, flush=True)\n" +
    "time.sleep(62.5)\n";
  const started = Date.now();
  const results = await probe({ one: [hanging], two: [hanging], good: ["print(1)"] }, "3");
  expect(Date.now() - started).toBeLessThan(5900);
  for (const name of ["one", "two"]) {
    expect(results[name]).toMatchObject({ code: -9, stderr: "so far\n\nstopped after 3 s" });
    const pids = results[name]?.stdout.trim().split(" ") ?? [];
    expect(pids).toHaveLength(2);
    await vi.waitFor(() => {
      expect(processes((id) => pids.includes(id))).toEqual([]);
    });
  }
  expect(results["good"]).toEqual({ code: 0, stdout: "1\n", stderr: "" });
});

test("a script outside of ASCII is read in any locale", async () => {
  const results = await probe({ it: ["import sys; print(ascii('é'), ascii(sys.argv[1]))", "…"] }, null, {
    PYTHONIOENCODING: "latin-1",
  });
  expect(results["it"]).toEqual({ code: 0, stdout: String.raw`'\xe9' '\u2026'` + "\n", stderr: "" });
});

import * as fs from "node:fs";
import * as path from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import type { ProblemCode } from "../../components/preflight/codes";
import type { PreflightResult } from "../../components/preflight/run";
import type { NodeSettings } from "../../components/schema";
import { boot, execOn, powerCut } from "../../scripts/virtual-sparks/hosts";
import { setLink } from "../../scripts/virtual-sparks/network";
import { PROJECT } from "../../scripts/virtual-sparks/project";
import { type Node, topology } from "../../scripts/virtual-sparks/topology";
import { lab, must } from "./run";

// Faults on virtual Sparks, each found by preflight before anything is touched. No model is served here.

const sh = (node: Node, script: string) => must(execOn(node, ["bash", "-c", script]));

/** The stack's settings, as they are in its file. */
const file = path.join(PROJECT, "Pulumi.lab.yaml");
type Config = Record<string, unknown> & { "dgx-spark-serving:nodes": NodeSettings[] };

function configure(change: (config: Config) => void): void {
  const content = parse(fs.readFileSync(file, "utf8")) as { config: Config };
  change(content.config);
  fs.writeFileSync(file, stringify(content));
}

function setNode(number: number, change: (node: NodeSettings) => void): void {
  configure((config) => {
    const node = config["dgx-spark-serving:nodes"][number - 1];
    if (node === undefined) throw new Error(`no node ${number}`);
    change(node);
  });
}

/** What is to be undone after a case, the last first. */
const undo: (() => Promise<unknown>)[] = [];

/** Runs a script on a node, and another one after the case. */
async function inject(node: Node, script: string, back: string): Promise<void> {
  undo.push(() => sh(node, back));
  await sh(node, script);
}

// What can't be made true in a namespace is made to look so, on that node alone: its memory by another /proc/meminfo, its
// clock by a `date` that is first on the PATH. The rest is as it is on a real machine.
const faults = {
  wrongInterface: (node: Node) => {
    setNode(node.number, ({ fabric }) => (fabric.interface = "enp9s9"));
  },
  wrongAddress: (node: Node) => {
    setNode(node.number, ({ fabric }) => (fabric.address = `192.168.200.${90 + node.number}`));
  },
  smallMtu: (node: Node) =>
    inject(node, `ip link set ${node.fabric.interface} mtu 1500`, `ip link set ${node.fabric.interface} mtu 9000`),
  linkDown: async (node: Node) => {
    undo.push(() => setLink(node, "fabric", "up"));
    await setLink(node, "fabric", "down");
  },
  /** Connections of `from` to this node are dropped, all but SSH; the other way is open. */
  firewall: (node: Node, from: Node) =>
    inject(
      node,
      [
        "nft add table inet fault",
        "nft 'add chain inet fault input { type filter hook input priority 0; }'",
        `nft add rule inet fault input ip saddr ${from.fabric.address} tcp dport != 22 'tcp flags & (syn | ack) == syn' drop`,
      ].join(" && "),
      "nft delete table inet fault",
    ),
  takenPort: (node: Node, port: number) =>
    inject(
      node,
      `setsid runuser -u aurora -- python3 -c 'import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", ${port})); s.listen()
open("/tmp/taken-${port}", "w").write(str(__import__("os").getpid())); time.sleep(3600)' >/dev/null 2>&1 </dev/null &
       for i in $(seq 50); do [ -s /tmp/taken-${port} ] && exit 0; sleep 0.1; done; exit 1`,
      `kill "$(cat /tmp/taken-${port})"; rm /tmp/taken-${port}`,
    ),
  shortMemory: (node: Node) =>
    inject(
      node,
      "sed 's/^MemAvailable:.*/MemAvailable:    1048576 kB/' /proc/meminfo > /run/meminfo && mount --bind /run/meminfo /proc/meminfo",
      "umount /proc/meminfo",
    ),
  shortDisk: (node: Node) => inject(node, "fallocate --length 50G /var/lib/docker/filler", "rm /var/lib/docker/filler"),
  dockerStopped: (node: Node) =>
    inject(
      node,
      // Its init starts it again, so it is held, as one that hangs.
      "kill -STOP $(cat /run/docker.pid)",
      "kill -CONT $(cat /run/docker.pid)",
    ),
  notInDockerGroup: (node: Node) => inject(node, "gpasswd --delete aurora docker", "gpasswd --add aurora docker"),
  hostname: (node: Node) =>
    inject(
      node,
      `cp /etc/hosts /run/hosts && echo '127.0.0.1 localhost\n10.9.9.9 ${node.name}' > /etc/hosts`,
      "cat /run/hosts > /etc/hosts",
    ),
  foreignContainer: (node: Node) =>
    inject(
      node,
      "tar --create --file - --files-from /dev/null | docker import - foreign && docker create --name dgx-spark-lab-ray foreign true",
      "docker rm dgx-spark-lab-ray && docker rmi foreign",
    ),
  noModel: (node: Node) =>
    inject(node, "mv /home/aurora/models /home/aurora/models-away", "mv /home/aurora/models-away /home/aurora/models"),
  refusedKey: (node: Node) =>
    inject(
      node,
      "mv /home/aurora/.ssh/authorized_keys /home/aurora/.ssh/away",
      "mv /home/aurora/.ssh/away /home/aurora/.ssh/authorized_keys",
    ),
  wrongHostKey: (node: Node) => {
    setNode(node.number, (settings) => (settings.hostKey = settings.hostKey.replace(/.{8}$/, "AAAAAAA=")));
  },
  clock: (node: Node) =>
    inject(
      node,
      `mkdir -p /usr/local/bin && printf '#!/bin/sh\\nexec /usr/bin/date --date="10 minutes ago" "$@"\\n' > /usr/local/bin/date && chmod 755 /usr/local/bin/date`,
      "rm /usr/local/bin/date",
    ),
};

/** Problems in what was printed, as `severity node code`. */
function problemsIn(text: string): string[] {
  return [...text.matchAll(/^\s*(error|warning) {2}(spark-\d) {2}([a-z0-9-]+)$/gm)].map(([, ...words]) =>
    words.join(" "),
  );
}

const errors = (...pairs: [number, ProblemCode][]) => pairs.map(([number, code]) => `error spark-${number} ${code}`);

let kept: Buffer;

async function restore(): Promise<void> {
  for (const back of undo.splice(0).reverse()) await back();
  fs.writeFileSync(file, kept);
}

/** What of ours is on a node. */
async function traces(node: Node): Promise<string> {
  return await sh(
    node,
    "docker ps --all --format '{{.Names}}' --filter label=dgx-spark-serving.deployment; docker images --quiet dgx-spark-serving; ls -A /home/aurora | grep dgx-spark || true",
  );
}

describe("two Sparks", () => {
  const nodes = topology(2);
  const [head, worker] = nodes as [Node, Node];

  beforeAll(async () => {
    await must(lab("down"));
    await must(lab("hosts", "up"));
    configure((config) => {
      // A host that is off is not waited for longer than needed.
      config["dgx-spark-serving:ssh"] = {
        ...(config["dgx-spark-serving:ssh"] as object),
        connectTimeoutSeconds: 3,
        connectAttempts: 1,
      };
    });
    kept = fs.readFileSync(file);
  });
  afterEach(restore);
  afterAll(async () => {
    await must(lab("down"));
  });

  /** An `up` that must be refused; what it found, and that nothing came of it. */
  async function refused(): Promise<string[]> {
    const { code, stdout, stderr } = await lab("pulumi", "up", "--yes");
    expect(code).not.toBe(0);
    const told = stdout + stderr;
    expect(told).toContain("nothing was changed on any node.");
    expect(told).not.toMatch(/^\s+at .*:\d+:\d+/m);
    return problemsIn(told);
  }

  test("a correct lab passes without a warning, and changes nothing", async () => {
    const before = await Promise.all(nodes.map(traces));
    const result = JSON.parse(await must(lab("preflight", "--json"))) as PreflightResult;
    expect(result).toMatchObject({ ready: true, problems: [] });
    expect(Object.keys(result.facts)).toEqual(["spark-1", "spark-2"]);
    expect(result.fabric.map(({ from, to, mtuBytes }) => [from, to, mtuBytes])).toEqual([
      ["spark-1", "spark-2", 9000],
      ["spark-2", "spark-1", 9000],
    ]);
    for (const { tcpGigabitsPerSecond } of result.fabric) expect(tcpGigabitsPerSecond).toBeGreaterThan(0);
    expect(await Promise.all(nodes.map(traces))).toEqual(before);
  });

  test.each<[string, () => void | Promise<void>, string[]]>([
    [
      "wrong interface",
      () => {
        faults.wrongInterface(worker);
      },
      errors([2, "fabric-interface-missing"]),
    ],
    [
      "wrong address",
      () => {
        faults.wrongAddress(head);
      },
      errors([1, "fabric-address-missing"]),
    ],
    ["MTU 1500 and 9000", () => faults.smallMtu(worker), errors([2, "fabric-mtu-unequal"])],
    [
      // The worker is reached over the fabric, so it is gone too.
      "link down",
      () => faults.linkDown(head),
      errors([1, "fabric-interface-down"], [2, "ssh-unreachable"]),
    ],
    ["fabric blocked one way", () => faults.firewall(worker, head), errors([1, "fabric-blocked"])],
    ["port taken on the head", () => faults.takenPort(head, 8000), errors([1, "port-taken"])],
    ["port taken on the worker", () => faults.takenPort(worker, 6380), errors([2, "port-taken"])],
    ["memory short", () => faults.shortMemory(worker), errors([2, "memory-short"])],
    ["disk short", () => faults.shortDisk(worker), errors([2, "disk-short"])],
    ["Docker stopped", () => faults.dockerStopped(worker), errors([2, "docker-down"])],
    ["user not in the group docker", () => faults.notInDockerGroup(worker), errors([2, "docker-denied"])],
    ["hostname trap", () => faults.hostname(worker), errors([2, "hostname-elsewhere"])],
    ["foreign container with our name", () => faults.foreignContainer(worker), errors([2, "container-foreign"])],
    ["model absent on the worker", () => faults.noModel(worker), errors([2, "model-unusable"])],
    ["sshd refuses the key", () => faults.refusedKey(worker), errors([2, "ssh-key-refused"])],
    [
      "wrong host key",
      () => {
        faults.wrongHostKey(worker);
      },
      errors([2, "ssh-host-key"]),
    ],
    ["clock 10 minutes off", () => faults.clock(worker), errors([2, "clock-skew"])],
  ])("%s", async (_, fault, expected) => {
    await fault();
    expect(await refused()).toEqual(expected);
    await restore();
    for (const node of nodes) expect(await traces(node)).toBe("");
  });

  test("jump host down", async () => {
    await powerCut(head);
    undo.push(() => boot(head));
    expect(await refused()).toEqual(errors([1, "ssh-unreachable"], [2, "ssh-jump-host"]));
  });

  test("an error that preflight.allow names is a warning, and says so", async () => {
    await faults.hostname(worker);
    configure((config) => {
      config["dgx-spark-serving:preflight"] = { allow: ["hostname-elsewhere"] };
    });
    const { code, stdout } = await lab("preflight");
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^ {2}warning {2}spark-2 {2}hostname-elsewhere \(an error that preflight\.allow lets pass\)$/m,
    );
    expect(stdout).toContain("0 errors, 1 warning. Nothing was changed.");
  });
});

describe("eight Sparks", () => {
  const nodes = topology(8);
  const node = (number: number) => nodes[number - 1] as Node;

  beforeAll(async () => {
    await must(lab("down"));
    await must(lab("hosts", "up", "--nodes", "8"));
    kept = fs.readFileSync(file);
  });
  afterEach(restore);
  afterAll(async () => {
    await must(lab("down"));
  });

  test("all of them pass without a warning", async () => {
    const result = JSON.parse(await must(lab("preflight", "--json"))) as PreflightResult;
    expect([result.ready, result.problems, result.fabric.length]).toEqual([true, [], 56]);
  });

  test("everything wrong at once is told in one run", async () => {
    configure((config) => {
      config["dgx-spark-serving:ssh"] = {
        ...(config["dgx-spark-serving:ssh"] as object),
        connectTimeoutSeconds: 3,
        connectAttempts: 1,
      };
    });
    await faults.takenPort(node(1), 8000);
    await faults.shortMemory(node(1));
    // A second jump host, which is down.
    setNode(2, (settings) => {
      settings.host = "10.1.230.99";
      delete settings.via;
    });
    setNode(3, (settings) => (settings.via = "spark-2"));
    await faults.refusedKey(node(4));
    faults.wrongHostKey(node(5));
    faults.wrongInterface(node(6));
    faults.wrongAddress(node(6));
    await faults.dockerStopped(node(6));
    await faults.clock(node(6));
    // A port without a cable.
    await inject(
      node(7),
      "ip link add enp1s0f1np1 type veth peer name no-cable && ip addr add 192.168.201.7/24 dev enp1s0f1np1",
      "ip link del enp1s0f1np1",
    );
    setNode(7, ({ fabric }) => {
      fabric.interface = "enp1s0f1np1";
      fabric.address = "192.168.201.7";
    });
    await faults.notInDockerGroup(node(7));
    await faults.hostname(node(7));
    await faults.noModel(node(7));
    await faults.smallMtu(node(8));
    await faults.takenPort(node(8), 6380);
    await faults.shortDisk(node(8));
    await faults.foreignContainer(node(8));
    await faults.firewall(node(8), node(1));

    const { code, stdout } = await lab("preflight");
    expect(code).toBe(1);
    expect(problemsIn(stdout)).toEqual([
      ...errors(
        [1, "memory-short"],
        [1, "port-taken"],
        [1, "fabric-blocked"],
        [2, "ssh-unreachable"],
        [3, "ssh-jump-host"],
        [4, "ssh-key-refused"],
        [5, "ssh-host-key"],
        [6, "clock-skew"],
        [6, "docker-down"],
        [6, "fabric-interface-missing"],
        [6, "fabric-address-missing"],
        [7, "hostname-elsewhere"],
        [7, "docker-denied"],
        [7, "model-unusable"],
        [7, "fabric-interface-down"],
        [8, "disk-short"],
        [8, "container-foreign"],
        [8, "port-taken"],
        [8, "fabric-mtu-unequal"],
      ),
    ]);
  });
});

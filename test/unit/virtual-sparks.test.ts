import { execFileSync, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { expect, test } from "vitest";
import { schema } from "../../components/schema";
import { overlap } from "../../scripts/virtual-sparks/cidr";
import { accountFiles, nodeSetting } from "../../scripts/virtual-sparks/node-files";
import { mergeSettings } from "../../scripts/virtual-sparks/project";
import { withoutUnseenPreview } from "../../scripts/virtual-sparks/pulumi";
import { benchmarkTable, chat, parseOutputs } from "../../scripts/virtual-sparks/result";
import { type Node, topology } from "../../scripts/virtual-sparks/topology";
import { configurationOf, figures, hostKeys } from "./stack";

const [head, worker] = topology(2) as [Node, Node];

test("the nodes are settings that the program takes: the head by management, the others through it", () => {
  const settings = topology(3).map((node) => nodeSetting(node, head, hostKeys[0]));
  const parsed = schema.parse({ ...configurationOf("lab"), nodes: settings }).nodes;
  expect(parsed.map(({ name, host, via, fabric }) => [name, host, via, fabric.interface, fabric.address])).toEqual([
    ["spark-1", "10.1.230.180", undefined, "enp1s0f0np0", "192.168.200.12"],
    ["spark-2", "192.168.200.13", "spark-1", "enP2p1s0f1np1", "192.168.200.13"],
    ["spark-3", "192.168.200.14", "spark-1", "enp1s0f0np0", "192.168.200.14"],
  ]);
});

test.each([0, 9, 1.5])("%d nodes are refused", (count) => {
  expect(() => topology(count)).toThrow(`--nodes ${count}: give a whole number from 1 to 8`);
});

test("settings: the machine's win, the repository's changes arrive, the person's own stay", () => {
  const committed = { a: 1, b: 2 };
  expect(mergeSettings({}, {}, committed, { ssh: { key: "k" } })).toEqual({ a: 1, b: 2, ssh: { key: "k" } });
  const current = { a: 9, b: 2, c: 3, ssh: { key: "old", attempts: 5 } };
  expect(mergeSettings(current, committed, { a: 1, b: 7 }, { ssh: { key: "k" } })).toEqual({
    a: 9,
    b: 7,
    c: 3,
    ssh: { key: "k", attempts: 5 },
  });
  expect(mergeSettings(current, committed, { a: 1 }, {})).toEqual({ a: 9, c: 3, ssh: { key: "old", attempts: 5 } });
});

test.each([
  [
    ["up", "--yes"],
    ["up", "--yes", "--skip-preview"],
  ],
  [["up"], ["up"]],
  [
    ["up", "-y", "-f"],
    ["up", "-y", "-f"],
  ],
  [
    ["up", "--yes", "--plan=x"],
    ["up", "--yes", "--plan=x"],
  ],
  [
    ["destroy", "--yes"],
    ["destroy", "--yes"],
  ],
])("pulumi %j is run as %j", (args, run) => {
  expect(withoutUnseenPreview(args)).toEqual(run);
});

test("a node has this machine's system accounts, locked, and one person", () => {
  const { passwd, shadow } = accountFiles({
    passwd:
      "root:x:0:0:root:/root:/bin/bash\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\nme:x:1000:1000::/home/me:/bin/bash\n",
    group: "root:x:0:\ndocker:x:998:me\nme:x:1000:\n",
  });
  expect(passwd.split("\n").map((line) => line.split(":")[0])).toEqual(["root", "sshd", "aurora", ""]);
  expect(shadow).not.toMatch(/^[^:]+:[^*!]/m);
});

test.each([
  ["10.1.230.0/24", "10.1.230.7/32", true],
  ["10.1.230.0/24", "10.1.0.0/16", true],
  ["10.1.230.0/24", "10.1.231.0/24", false],
  ["192.168.200.0/24", "0.0.0.0/0", true],
])("%s and %s overlap: %s", (left, right, expected) => {
  expect([overlap(left, right), overlap(right, left)]).toEqual([expected, expected]);
});

test("figures are shown as a table, one row a level", () => {
  const outputs = parseOutputs({ endpoint: "http://h:1/v1", model: "m", apiKey: "k", nodes: [], benchmark: figures });
  const rows = benchmarkTable(outputs).split("\n");
  expect(rows.slice(1).map((row) => row.trim().split(/ {2,}/))).toEqual([
    ["single-stream", "1", "4", "31.5 [31.0–32.0]", "15.9", "17.0", "15.9", "17.0", "–"],
  ]);
});

test("without a benchmark there are no figures, and that is said", () => {
  const outputs = parseOutputs({ endpoint: "http://h:1/v1", model: "m", apiKey: "k", nodes: [] });
  expect(benchmarkTable(outputs)).toBe("no figures: benchmark.enabled is false");
});

test("an endpoint that does not answer is told with the cure", async () => {
  const outputs = { endpoint: "http://127.0.0.1:1/v1", model: "m", apiKey: "k" };
  await expect(chat(outputs)).rejects.toThrow(
    /^http:\/\/127\.0\.0\.1:1\/v1\/chat\/completions does not answer: .*\n(?:.*\n)+ {2}\.\/scripts\/lab pulumi up --refresh$/,
  );
});

test.each([[], ["help"], ["-h"], ["--help"]])("help comes without anything built first: %j", (...args) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "lab-"));
  try {
    // Alone, without what it would build with.
    fs.mkdirSync(path.join(folder, "scripts"));
    fs.copyFileSync("scripts/lab", path.join(folder, "scripts/lab"));
    const alone = spawnSync("bash", [path.join(folder, "scripts/lab"), ...args], { encoding: "utf8" });
    expect(alone).toMatchObject({
      status: 0,
      stderr: "",
      stdout: expect.stringMatching(/^Usage: scripts\/lab up/) as string,
    });
    expect(execFileSync("scripts/lab", args, { encoding: "utf8" })).toMatch(/^Usage: lab \[options\] \[command\]/);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
});

test.each(["unknown ok not-installed", "deinstall ok config-files", "install ok half-installed"])(
  "a package that dpkg knows but does not have is installed: %s",
  (status) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "lab-"));
    try {
      const wanted =
        /^packages=\(\n([^)]*)\)/m.exec(fs.readFileSync("scripts/lab", "utf8"))?.[1]?.trim().split(/\s+/) ?? [];
      const described = wanted.map((name) => {
        const state = name === "openssh-server" ? status : "install ok installed";
        return `Package: ${name}\nStatus: ${state}\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: a\n`;
      });
      fs.writeFileSync(path.join(folder, "status"), described.join("\n"));
      fs.writeFileSync(path.join(folder, "apt-get"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
      const { stderr } = spawnSync("scripts/lab", ["status"], {
        encoding: "utf8",
        env: { ...process.env, DPKG_ADMINDIR: folder, PATH: `${folder}:${process.env.PATH ?? ""}` },
      });
      expect(stderr).toContain("Installing Debian packages: openssh-server\n");
    } finally {
      fs.rmSync(folder, { recursive: true });
    }
  },
);

test("the nodes' fabric interfaces have different names, as on real Sparks", () => {
  expect(head.fabric.interface).not.toBe(worker.fabric.interface);
});

import { execFile } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { stringify } from "yaml";
import { configurationOf } from "../stack";
import { loggedIn, stillRunning, withSsh } from "./fakeSsh";
import { settingsOf } from "./spark";

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), "preflight-"));
});
afterEach(() => {
  fs.rmSync(folder, { recursive: true });
});

interface Ended {
  code: number | string | null | undefined;
  signal: NodeJS.Signals | null | undefined;
  stdout: string;
  stderr: string;
}

/** Runs ./scripts/preflight; `started` is called at once with its process id. */
function preflight(args: string[], input = "", started: (pid: number) => void = () => undefined): Promise<Ended> {
  return new Promise((resolve) => {
    const child = execFile("scripts/preflight", args, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, signal: error?.signal, stdout, stderr });
    });
    child.stdin?.end(input);
    started(child.pid as number);
  });
}

/** By hand, with this as the stack's file, on Sparks that can't be reached. */
function byHand(text: string): Promise<Ended> {
  fs.writeFileSync(path.join(folder, "Pulumi.dev.yaml"), text);
  return withSsh({ "*": "echo 'No route to host' >&2; exit 255" }, () =>
    preflight(["--stack", "dev", "--cwd", folder]),
  );
}

/** The stack's file with some keys set. */
function file(changes: Record<string, unknown> = {}): string {
  const raw = { ...configurationOf("dev"), ...changes };
  return stringify({
    config: Object.fromEntries(Object.entries(raw).map(([key, value]) => [`dgx-spark-serving:${key}`, value])),
  });
}

const secret = { secure: "v1:Zm9v:YmFy" };

test.each<[string, () => string]>([
  ["plain values", () => file()],
  ["a secret", () => file({ huggingFaceToken: secret })],
  ["secrets below a key", () => file({ server: { environment: { TOKEN: secret }, extraArgs: ["--x", secret] } })],
  [
    "keys as JSON text",
    () => file({ nodes: JSON.stringify(configurationOf("dev")["nodes"]), ssh: '{"connectAttempts":1}' }),
  ],
])("a stack's file with %s is taken by hand too", async (_what, text) => {
  const { code, stdout, stderr } = await byHand(text());
  expect([code, stderr]).toEqual([1, ""]);
  expect(stdout).toContain("found:    aurora@10.1.230.180:22: No route to host");
});

test.each<[string, string, string]>([
  ["no `config`", "secretsprovider: passphrase\n", "nodes = (not set)"],
  ["an empty `config`", "config:\n", "nodes = (not set)"],
  ["nothing", "", "nodes = (not set)"],
  ["a list in place of `config`", "config: []\n", "it has to hold a map `config`, as Pulumi.dev.yaml does"],
  ["a text in place of `config`", "config: text\n", "it has to hold a map `config`, as Pulumi.dev.yaml does"],
  ["text", "This is no stack.\n", "it has to hold a map `config`, as Pulumi.dev.yaml does"],
  ["no YAML", "config: [\n  a: 'b\n", "is no YAML, correct it: "],
])("a stack's file that holds %s is a mistake that is told", async (_what, text, told) => {
  const { code, stdout, stderr } = await byHand(text);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(/^preflight: /);
  expect(stderr).toContain(told);
  if (!told.includes("not set")) expect(stderr).toContain(path.join(folder, "Pulumi.dev.yaml"));
  expect(stderr).not.toMatch(/^ +at /m);
});

test("a stack's file that is not there is a mistake that is told", async () => {
  const { code, stderr } = await preflight(["--stack", "other", "--cwd", folder]);
  expect([code, stderr]).toEqual([
    2,
    `preflight: there is no Pulumi.other.yaml in ${folder}, nor above it: give the stack (--stack NAME), and the project's folder (--cwd DIR)\n`,
  ]);
});

test("a stack's file is looked for in the folders above too", async () => {
  fs.writeFileSync(path.join(folder, "Pulumi.dev.yaml"), "text");
  fs.mkdirSync(path.join(folder, "a/b"), { recursive: true });
  const { code, stderr } = await preflight(["--stack", "dev", "--cwd", path.join(folder, "a/b")]);
  expect([code, stderr]).toEqual([
    2,
    expect.stringContaining(`${path.join(folder, "Pulumi.dev.yaml")} is no stack's file`),
  ]);
});

test("settings that are wrong are JSON too, where that is asked for", async () => {
  fs.writeFileSync(path.join(folder, "Pulumi.dev.yaml"), file({ modle: 5 }));
  const { code, stdout, stderr } = await preflight(["--stack", "dev", "--cwd", folder, "--json"]);
  expect([code, stderr]).toEqual([2, ""]);
  expect(JSON.parse(stdout)).toEqual({
    ready: false,
    configuration: [
      {
        ...{ key: "modle", value: 5, fix: "in the stack's file: rename it to `model`" },
        message: expect.stringContaining("no such key; did you mean `model`?") as string,
      },
    ],
  });
});

test("without a node that answers there is no table", async () => {
  const { stdout } = await byHand(file());
  expect(stdout).toMatch(/^ {2}error {2}spark-1 {2}ssh-unreachable\n/);
  expect(stdout).toMatch(/\n\n2 errors, 0 warnings\. Nothing was changed\.\n$/);
});

// The words are those of Pulumi 3.
test.each<[string, string | undefined, string]>([
  ["is not there", undefined, 'pulumi is not on PATH: eval "$(./scripts/setup --env)", or give the stack'],
  [
    "is not logged in",
    "PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions",
    "pulumi is not logged in: pulumi login --local, or give the stack",
  ],
  [
    "has no stack selected",
    "no stack selected; please use `pulumi stack select` or `pulumi stack init` to choose one",
    "no stack is selected here: give one",
  ],
  [
    "is in no project",
    "no Pulumi.yaml found",
    "pulumi does not tell which stack is selected (no Pulumi.yaml found): give one",
  ],
])("without --stack, a pulumi that %s", async (_what, says, told) => {
  const said = says === undefined ? undefined : `#!/bin/sh\ncat >&2 <<'END'\nerror: ${says}\nEND\nexit 1\n`;
  if (said !== undefined) fs.writeFileSync(path.join(folder, "pulumi"), said, { mode: 0o755 });
  fs.symlinkSync(process.execPath, path.join(folder, "node"));
  const before = process.env["PATH"];
  process.env["PATH"] = `${folder}:/usr/bin:/bin`;
  try {
    expect(await preflight(["--cwd", folder])).toMatchObject({
      ...{ code: 2, stdout: "", stderr: `preflight: ${told} (--stack NAME)\n` },
    });
  } finally {
    process.env["PATH"] = before;
  }
});

test("a command that is wrong is no error of a Spark's, and help says what the codes are", async () => {
  for (const args of [["--nope"], ["--step", "nope"], ["--stack"], ["explain", "a", "b"], ["nope"]]) {
    expect(await preflight(args)).toMatchObject({ code: 2, stdout: "" });
  }
  const { code, stdout } = await preflight(["--help"]);
  expect([code, stdout]).toEqual([0, expect.stringMatching(/^Exit codes: 0 .*, 1 .*, 2 /m)]);
});

test("explain: a file that is not there, and a folder", async () => {
  const nothing = path.join(folder, "nothing");
  expect(await preflight(["explain", nothing])).toMatchObject({
    code: 2,
    stderr: `preflight: there is no file ${nothing}\n`,
  });
  expect(await preflight(["explain", folder])).toMatchObject({
    ...{ code: 2, stderr: `preflight: ${folder} is a folder: give a file\n` },
  });
});

test.each(["", "noise", "[]", "null", '{"deployment":"dev"}', '{"deployment":"dev","settings":{"nodes":[]}}'])(
  "a step that is handed %j says what it takes",
  async (input) => {
    const { code, stdout, stderr } = await preflight(["--step", "nodes"], input);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr).toMatch(
      /^preflight: --step is the program's own: settings as JSON on stdin; by hand, leave it out\n/,
    );
    expect(stderr).not.toMatch(/^ +at .*:\d+\)?$/m);
  },
);

test.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("%s ends it, and its connections", async (signal) => {
  const settings = settingsOf();
  const hosts = settings.nodes.map(({ host }) => host);
  const does = Object.fromEntries(hosts.map((host) => [host, `${loggedIn}\nanswer 1\nexec sleep 30`]));
  await withSsh(does, async (at) => {
    let pid = 0;
    const input = JSON.stringify({ deployment: "dev", settings });
    const ended = preflight(["--step", "nodes"], input, (started) => (pid = started));
    await vi.waitFor(() => {
      expect(stillRunning(at)).toHaveLength(2);
    }, 20_000);
    process.kill(pid, signal);
    expect(await ended).toMatchObject({ signal, stdout: "" });
    await vi.waitFor(() => {
      expect(stillRunning(at)).toEqual([]);
    });
  });
});

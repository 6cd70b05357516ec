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
    `preflight: there is no ${path.join(folder, "Pulumi.other.yaml")}: give the stack (--stack NAME), and the project's folder (--cwd DIR)\n`,
  ]);
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

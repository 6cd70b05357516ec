import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import * as docker from "@pulumi/docker";
import * as pulumi from "@pulumi/pulumi";
import { LocalWorkspace } from "@pulumi/pulumi/automation";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { routeTo, sshOptions } from "../../components/connection";
import { keptRunning } from "../../components/keepRunning";
import { connectionOf, remoteStep } from "../../components/remoteStep";
import { type Settings, schema } from "../../components/schema";
import { vllmArguments } from "../../components/vllm";
import { execOn } from "../../scripts/virtual-sparks/hosts";
import { attempt } from "../../scripts/virtual-sparks/run";
import { type Node, topology } from "../../scripts/virtual-sparks/topology";
import { lab, labSettings, must } from "./run";

// Words from the settings arrive byte for byte: in a container's arguments and variables by way of the plugins, ssh, sshd and
// Docker, in a step's by way of ssh, sshd and the login shell. On the node that is reached through another one.

vi.mock("../../components/step", async (original) => {
  const step = await original<typeof import("../../components/step")>();
  const show = "import json, sys; print(json.dumps(sys.argv[1:]))";
  return { ...step, stepProgram: () => step.programWith({ "show.py": show }) };
});

const worker = topology(2)[1] as Node;
const backend = fs.mkdtempSync(path.join(os.tmpdir(), "arguments-"));
let settings: Settings;

beforeAll(async () => {
  await must(lab("down"));
  await must(lab("hosts", "up"));
  settings = schema.parse(labSettings());
  const image = "tar --create --file - --files-from /dev/null | docker import - empty";
  await must(execOn(worker, ["sh", "-c", image]));
});

afterAll(async () => {
  fs.rmSync(backend, { recursive: true });
  await must(lab("down"));
});

/** What a person's setting may hold: blanks, quotes, expansions, line ends, JSON, and any of Unicode. */
const handPicked = [
  `--speculative-config={"a b":"it's $HOME"}`,
  "--x=$(touch /home/aurora/run-by-a-shell)",
  "`touch /home/aurora/run-by-a-shell`",
  "; touch /home/aurora/run-by-a-shell #",
  "two\nlines\r\n\tand a tab",
  "%n%s%%h ${HOME} {{.Names}} \\n \\\\ * ? ~ !! & | > <",
  "\u00e9 \u{1f600} \u202e \u0001\u001b[31m",
];
/** Docker takes text as UTF-8, NUL ends a C string, and the plugin refuses what is empty and composes the rest: the settings refuse all of these. */
const word = fc
  .string({ unit: "binary", minLength: 1, maxLength: 20 })
  .filter((text) => !text.includes("\0") && Buffer.from(text).toString() === text && text.normalize("NFC") === text);

test("words arrive byte for byte in containers and steps, and no shell runs them", async () => {
  const cases = [handPicked, ...fc.sample(fc.array(word, { minLength: 1, maxLength: 8 }), 12)];
  const argvOf = (extraArgs: string[]) => {
    const server = { ...settings.server, extraArgs };
    return keptRunning(["vllm", ...vllmArguments({ ...settings, server }, settings.nodes[0], 1)]);
  };
  const route = routeTo(settings.nodes[1] as Settings["nodes"][0], settings.nodes);
  const program = async () => {
    const key = pulumi.secret(fs.readFileSync(settings.ssh.privateKeyPath ?? "", "utf8"));
    const provider = new docker.Provider("worker", {
      host: `ssh://${route.node.user}@${route.node.host}:${route.node.port}`,
      sshOpts: sshOptions(route, settings.ssh),
    });
    const node = {
      ...{ name: route.node.name, directory: ".arguments", ready: provider },
      connection: connectionOf(route, settings.ssh, key),
    };
    const outputs = cases.map((words, index) => {
      const [entrypoint, ...command] = argvOf(words);
      new docker.Container(
        `case-${index}`,
        {
          name: `case-${index}`,
          image: "empty",
          entrypoints: [entrypoint],
          command,
          envs: words.map((each, at) => `W${at}=${each}`),
          ...{ start: false, mustRun: false },
        },
        { provider },
      );
      return remoteStep(`step-${index}`, { node, create: { script: "show.py", args: words }, timeoutSeconds: 60 }, {})
        .stdout;
    });
    return Promise.resolve({ steps: pulumi.all(outputs) });
  };
  const stack = await LocalWorkspace.createStack(
    { stackName: "arguments", projectName: "arguments", program },
    { envVars: { PULUMI_BACKEND_URL: `file://${backend}`, PULUMI_CONFIG_PASSPHRASE: "arguments" } },
  );
  try {
    const { outputs } = await stack.up();
    const steps = outputs["steps"]?.value as string[];
    expect(steps.map((text) => JSON.parse(text) as string[])).toEqual(cases);
    const names = cases.map((_, index) => `case-${index}`);
    const found = JSON.parse(await must(execOn(worker, ["docker", "inspect", ...names]))) as {
      Path: string;
      Args: string[];
      Config: { Env: string[] };
    }[];
    expect(found.map(({ Path, Args }) => [Path, ...Args])).toEqual(cases.map(argvOf));
    expect(found.map(({ Config: { Env } }) => Env.filter((each) => /^W\d/.test(each)).sort())).toEqual(
      cases.map((words) => words.map((each, at) => `W${at}=${each}`).sort()),
    );
    expect(await attempt(["./scripts/lab", "ssh", "spark-2", "ls", "run-by-a-shell"])).toMatchObject({ code: 2 });
  } finally {
    await stack.destroy();
  }
  expect(await must(execOn(worker, ["sh", "-c", "docker ps --all --quiet; ls -d /home/aurora/run-by* || true"]))).toBe(
    "",
  );
});

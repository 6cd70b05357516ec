import { expect, test, vi } from "vitest";
import { gather } from "../../../components/preflight/gather";
import { judge } from "../../../components/preflight/judge";
import { runOnNode } from "../../../components/ssh";
import { loggedIn, stillRunning, withSsh } from "./fakeSsh";
import { settingsOf } from "./spark";

/** Three Sparks, the second and the third behind the head, and little patience. */
function three() {
  const settings = settingsOf({ ssh: { connectTimeoutSeconds: 2, connectAttempts: 1 } });
  const [head, worker] = settings.nodes;
  if (worker === undefined) throw new Error("the configuration has one node");
  const fabric = { ...worker.fabric, address: "192.168.200.14" };
  settings.nodes.push({ ...worker, name: "spark-3", host: fabric.address, fabric });
  return { settings, hosts: [head.host, worker.host, fabric.address] };
}

/** What is told of three Sparks whose `ssh` does this, and which took part in the fabric's try. */
async function gathered(...does: [string, string, string]) {
  const { settings, hosts } = three();
  return withSsh(Object.fromEntries(hosts.map((host, index) => [host, does[index] ?? ""])), async (folder) => {
    const probes = await gather(settings, "dev", 2);
    await vi.waitFor(() => {
      expect(stillRunning(folder)).toEqual([]);
    });
    return {
      failures: probes.flatMap(({ failure }) => (failure === null ? [] : [failure])),
      tried: probes.filter(({ fabric }) => fabric !== null).map(({ node }) => node.name),
      judged: judge(probes, settings, "dev"),
    };
  });
}

const well = `${loggedIn}\nexec answer 9`;
const hangs = "exec sleep 30";
const refuses = "echo 'aurora@10.1.230.180: Permission denied (publickey).' >&2; exit 255";
const breaks = "echo 'client_loop: send disconnect: Broken pipe' >&2; exit 255";
const behindHead = "aurora@192.168.200.13:22 through spark-1 (aurora@10.1.230.180:22)";

test("nodes that answer are asked, and tried among each other", async () => {
  expect(await gathered(well, well, well)).toMatchObject({ failures: [], tried: ["spark-1", "spark-2", "spark-3"] });
});

test("a node behind one that can't be used has no problem of its own, and is not tried", async () => {
  const { failures } = await gathered(refuses, "exit 127", "exit 127");
  expect(failures.map(({ code }) => code)).toEqual(["ssh-key-refused", "ssh-jump-host", "ssh-jump-host"]);
  expect(failures[1]?.found).toBe("it is reached through spark-1, which can't be used: ssh-key-refused");
});

const notLetThrough = [
  "echo 'Stdio forwarding request failed: Session open refused by peer' >&2",
  "echo 'kex_exchange_identification: Connection closed by remote host' >&2; exit 255",
].join("\n");

test.each([
  [[], ""],
  [["connect failed: No route to host"], ": No route to host"],
  [["connect failed: Connection refused", "connect failed: Connection refused"], ": Connection refused"],
  [
    ["connect failed: No route to host", "administratively prohibited"],
    ": No route to host, or administratively prohibited",
  ],
])("why a node is not reached through another one is asked of that one: %j", async (reasons, told) => {
  const says = reasons.map((reason) => `echo 'channel 3: open failed: ${reason}' >&2`).join("\n");
  const { failures } = await gathered(`${loggedIn}\n${says}\nexec answer 9`, notLetThrough, well);
  expect(failures).toMatchObject([
    { code: "ssh-unreachable", node: "spark-2", found: `${behindHead}: spark-1 can't reach 192.168.200.13:22${told}` },
  ]);
});

test("the way through a jump host is talkative: so a frozen node is told from one that is off", async () => {
  const banner = "echo 'Connection timed out during banner exchange' >&2; exit 255";
  const opened = `case "$all" in *"ProxyCommand=ssh -v "*) echo 'debug1: mux_client_request_stdio_fwd: master session id: 3' >&2;; esac`;
  const { failures } = await gathered(well, banner, `${opened}\n${banner}`);
  expect(failures.map(({ code }) => code)).toEqual(["ssh-unreachable", "ssh-frozen"]);
});

test("a node behind one without Python is told from it", async () => {
  const { failures } = await gathered("exit 127", refuses, well);
  expect(failures.map(({ code }) => code)).toEqual(["probe-failed", "ssh-key-refused"]);
});

// One node, the second, that is not well: what is told of it. The others are tried all the same.
test.each<[string, string, Record<string, unknown>]>([
  [
    "does not log in",
    hangs,
    { code: "ssh-unreachable", found: `${behindHead}: no answer within 4 s`, expected: "a connection" },
  ],
  [
    "hangs once logged in",
    `${loggedIn}\n${hangs}`,
    { code: "probe-failed", found: "logged in; no answer within 4 s", expected: "facts as JSON" },
  ],
  [
    "asks a person something",
    `${loggedIn}\necho 'Accept the terms? [y/n]'\n${hangs}`,
    { code: "probe-failed", found: "logged in; no answer within 4 s; Accept the terms? [y/n]" },
  ],
  [
    "hangs at its facts",
    `${loggedIn}\nanswer 1\n${hangs}`,
    { code: "probe-failed", found: "logged in; no answer within 2 s" },
  ],
  [
    "hangs at the fabric's try",
    `${loggedIn}\nanswer 2\n${hangs}`,
    { code: "probe-failed", found: "logged in; no answer within 2 s" },
  ],
  [
    "has a shell that greets people",
    `${loggedIn}\necho 'Welcome to DGX Spark'\necho '{}'\n${well}`,
    {
      code: "probe-failed",
      found: 'the shell of aurora prints "Welcome to DGX Spark" when nobody is there',
      mend: expect.stringContaining("not interactive") as string,
    },
  ],
  [
    "lets nobody in",
    `${loggedIn}\necho 'This account is currently not available.'\nexit 1`,
    { code: "probe-failed", found: "This account is currently not available." },
  ],
  [
    "has no Python, and an ssh that counts bytes",
    `${loggedIn}\necho 'bash: line 1: python3: command not found' >&2\necho 'Transferred: sent 1 bytes' >&2\nexit 127`,
    { code: "probe-failed", found: "bash: line 1: python3: command not found" },
  ],
  [
    "is lost in the middle of its facts",
    `${loggedIn}\nanswer 1\nread -r question\nprintf '{"facts": {"stdout": "'\nhead -c 60000 /dev/zero | tr '\\0' x\n${breaks}`,
    {
      code: "ssh-unreachable",
      found: expect.stringMatching(/^aurora@.{70,90}: send disconnect: Broken pipe; \{"facts": \{"stdout": "x{99,}$/),
    },
  ],
  [
    "is lost at the fabric's try",
    `${loggedIn}\nanswer 2\nread -r question\n${breaks}`,
    { code: "ssh-unreachable", found: `${behindHead}: client_loop: send disconnect: Broken pipe` },
  ],
  [
    "is reached by an ssh that is killed",
    "kill -9 $$",
    { code: "ssh-unreachable", found: `${behindHead}: ssh was ended by SIGKILL` },
  ],
])("a node that %s", async (_what, does, told) => {
  const { failures, tried, judged } = await gathered(well, does, well);
  expect(failures).toMatchObject([{ ...told, node: "spark-2", severity: "error" }]);
  expect(failures[0]?.found.length).toBeLessThanOrEqual(300);
  expect(tried).toEqual(["spark-1", "spark-3"]);
  expect(judged.filter(({ code }) => /^fabric-(untried|blocked)/.test(code))).toEqual([]);
});

test("one that others are reached through keeps its connection until they are tried, though it hangs", async () => {
  const whileItLasts = [
    ...[loggedIn, "answer 2", "read -r question", 'kill -0 "$(cat "$at/10.1.230.180.pid")" || exit 255'],
    ...[`printf '%s\\n' "$question" | answer 1`, hangs],
  ].join("\n");
  const { failures, tried } = await gathered(`${loggedIn}\nanswer 1\n${hangs}`, whileItLasts, whileItLasts);
  expect(failures).toMatchObject([{ node: "spark-1", code: "probe-failed", found: "logged in; no answer within 2 s" }]);
  expect(tried).toEqual(["spark-2", "spark-3"]);
});

test("an operator's machine without ssh is told so", async () => {
  const { settings } = three();
  const path = process.env["PATH"];
  process.env["PATH"] = "/nowhere";
  try {
    const [head] = await gather(settings, "dev");
    expect(head?.failure).toMatchObject({ code: "ssh-unreachable", found: "aurora@10.1.230.180:22: spawn ssh ENOENT" });
    const ended = await runOnNode({ node: settings.nodes[0], via: undefined }, [], ["true"], { limitSeconds: 9 });
    expect(ended).toEqual({ code: null, stdout: "", stderr: "spawn ssh ENOENT" });
  } finally {
    process.env["PATH"] = path;
  }
});

test.each<[string, { code: number | null; stdout: string; stderr: string }]>([
  ["echo said; exit 0", { code: 0, stdout: "said\n", stderr: "" }],
  ["echo why >&2; exit 3", { code: 3, stdout: "", stderr: "why\n" }],
  ["echo why >&2; kill -9 $$", { code: null, stdout: "", stderr: "why\n\nssh was ended by SIGKILL" }],
  [hangs, { code: null, stdout: "", stderr: "" }],
])("any end of a program on a node is a result: %s", async (does, ended) => {
  const { settings, hosts } = three();
  await withSsh({ [hosts[0] ?? ""]: does }, async () => {
    const route = { node: settings.nodes[0], via: undefined };
    expect(await runOnNode(route, [], ["true"], { limitSeconds: 2 })).toEqual(ended);
  });
});

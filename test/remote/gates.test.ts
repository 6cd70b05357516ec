import * as fs from "node:fs";
import * as net from "node:net";
import type { AddressInfo } from "node:net";
import * as path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { parseSmoke } from "../../components/smoke";
import { json, processes, Sandbox, serve, until } from "./sandbox";

type Handler = Parameters<typeof serve>[0];

const key = "a-canary-key";
let box: Sandbox;
let port: string;
let handle: Handler;
let close: () => void;

beforeEach(async () => {
  box = new Sandbox();
  // `docker exec CONTAINER printenv VLLM_API_KEY` is all that the gates ask for.
  box.write("docker-world/exec", `#!/bin/sh\n[ "$2 $3" = "printenv VLLM_API_KEY" ] && echo ${key}\n`, 0o755);
  engine({ status: "running" });
  ({ port, close } = await serve((request, response) => {
    handle(request, response);
  }));
});
afterEach(() => {
  close();
  box.remove();
});

function engine(state: Record<string, unknown>): void {
  // In one piece, because a gate may be reading it.
  const file = box.write("docker-world/containers.json.new", { server: state });
  fs.renameSync(file, path.join(box.docker, "containers.json"));
}

/** Calls of docker that begin with a word. */
const calls = (word: string) =>
  box
    .read("docker-world/calls.log")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as string[])
    .filter(([first]) => first === word);

const completion = (message: Record<string, unknown>, tokens = 3) => ({
  choices: [{ message }],
  usage: { completion_tokens: tokens },
});

/** A server that answers as vLLM does; `chat` decides what a completion gets. */
const api =
  (chat: Handler): Handler =>
  (request, response) => {
    if (request.key !== `Bearer ${key}`) json(response, 401, { error: "Unauthorized" });
    else if (request.url === "/v1/models") json(response, 200, { data: [{ id: "tiny" }] });
    else chat(request, response);
  };

const gate = async (container: string, seconds: number, model = "tiny") => {
  const ended = await box.run("wait_for_server.py", [container, port, model, String(seconds)]);
  // On a busy machine the first line comes later.
  return { ...ended, stderr: ended.stderr.replace(/^\d+ s:/m, "0 s:") };
};
const waitForServer = (seconds = 60, model = "tiny") => gate("server", seconds, model);

test("a completion passes the gate, which says so, and keeps the key to itself", async () => {
  handle = api((_, response) => {
    json(response, 200, completion({ content: "hello" }));
  });
  const results = [await waitForServer(), await waitForServer()];
  for (const { code, stdout, stderr } of results) {
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual({ changed: false, model: "tiny" });
    expect(stderr).toBe("0 s: tiny answers\n");
  }
  expect(box.read("docker-world/calls.log")).not.toContain(key);
});

test.each<[string, Handler]>([
  ["gets no answer", () => undefined],
  [
    "gets status 500",
    (_, response) => {
      json(response, 500, { error: "EngineDeadError" });
    },
  ],
  [
    "has no tokens",
    (_, response) => {
      json(response, 200, completion({ content: "" }, 0));
    },
  ],
])("/v1/models alone does not pass: the completion %s", async (_, chat) => {
  handle = api(chat);
  engine({ status: "running", log: "(APIServer) INFO: Application startup complete." });
  const { code, stdout, stderr } = await waitForServer(4);
  expect(code).toBe(1);
  expect(stdout).toBe("");
  expect(stderr).toContain("tiny did not answer within 4 s; it got as far as: API up, waiting for a completion");
});

test("a server of another model is refused at once", async () => {
  handle = api(() => undefined);
  expect(await waitForServer(60, "large")).toMatchObject({ code: 1, stderr: "the server names tiny, not large\n" });
});

const unknown = "RuntimeError: the engine's own trouble";

test.each<[string, Record<string, unknown>, string]>([
  ["exited", { status: "exited", exitCode: 1, restarts: 2 }, "is exited, exit code 1, restarted 2 times"],
  ["is dead", { status: "dead", exitCode: 137, restarts: 2 }, "is dead, exit code 137, restarted 2 times"],
  ["was restarted", { status: "running", restarts: 3 }, "is running, exit code 0, restarted 3 times"],
])("an engine that %s during the gate ends it early, with its last lines, and is stopped", async (_, state, told) => {
  engine({ status: "running", restarts: 2 });
  handle = (_request, response) => {
    engine({ ...state, log: `a line\n${unknown}` });
    json(response, 503, {});
  };
  const { code, stdout, stderr } = await waitForServer();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toBe(
    `0 s: starting the engine\na line\n${unknown}\n\nthe engine died: container server ${told}. ` +
      "Its last lines are above; all of them: docker logs server\n" +
      `The first errors in its log:\n  ${unknown}\n` +
      "The container was stopped, or it would restart for ever; the next `pulumi up` starts it again.\n",
  );
  expect(calls("stop")).toEqual([["stop", "server"]]);
  // Its log was read before.
  expect(box.read("docker-world/calls.log").trimEnd().split("\n").at(-1)).toBe('["stop", "server"]');
  // Errors of an earlier life are not named.
  expect(calls("logs")).toContainEqual(["logs", "--since", "2026-01-01T00:00:00.5Z", "--tail", "2000", "server"]);
});

test("an engine that was restarted before the gate but runs now passes it", async () => {
  engine({ status: "running", restarts: 4 });
  handle = api((_, response) => {
    json(response, 200, completion({ content: "hello" }));
  });
  expect(await waitForServer()).toMatchObject({ code: 0, stderr: "0 s: tiny answers\n" });
  expect([calls("start"), calls("stop")]).toEqual([[], []]);
});

test.each(["exited", "created"])("a container that is %s at the start is started once", async (status) => {
  engine({ status, exitCode: 1 });
  handle = api((_, response) => {
    json(response, 200, completion({ content: "hello" }));
  });
  expect(await waitForServer()).toMatchObject({
    code: 0,
    stderr: `container server is ${status}: starting it\n0 s: tiny answers\n`,
  });
  expect(calls("start")).toEqual([["start", "server"]]);
});

test("a container that dies again after its start, or can't be started, ends the gate", async () => {
  engine({ status: "exited", exitCode: 1, log: unknown, afterStart: { status: "exited", exitCode: 1 } });
  const { code, stderr } = await waitForServer();
  expect(code).toBe(1);
  expect(stderr).toMatch(/^container server is exited: starting it\n/);
  expect(stderr).toContain("the engine died: container server is exited, exit code 1");
  expect(calls("start")).toHaveLength(1);
  engine({ status: "paused", cannotStart: "cannot start a paused container" });
  expect(await waitForServer()).toEqual({
    code: 1,
    stdout: "",
    stderr:
      "container server is paused: starting it\ncontainer server can't be started: cannot start a paused container\n",
  });
});

/** A deployment's containers on the head, as they are named. */
function deployment(server: Record<string, unknown>, rayLog = "Ray runtime started.", rayStatus = "running"): void {
  const file = box.write("docker-world/containers.json.new", {
    "dgx-spark-dev-server": { status: "running", ...server },
    "dgx-spark-dev-ray": { status: rayStatus, log: rayLog },
  });
  fs.renameSync(file, path.join(box.docker, "containers.json"));
}
const waitForDeployment = (seconds: number) => gate("dgx-spark-dev-server", seconds);
const memory =
  "ValueError: Free memory on device cuda:0 (48.16/121.69 GiB) on startup is less than desired GPU memory utilization (0.5, 60.85 GiB).";
const memoryExplained =
  "cause: Only 48.16 of 121.69 GiB were free at the start, less than `server.gpuMemoryUtilization` asks for. (memory-not-free)\n" +
  `  seen: ${memory}\n` +
  "  mend: Set `server.gpuMemoryUtilization` below 48.16/121.69, or free memory on that node: end other programs (`nvidia-smi`), drop the page cache (`sync; echo 3 > /proc/sys/vm/drop_caches`).\n\n";
const unavailable: Handler = (_, response) => {
  json(response, 503, {});
};

test("an engine that dies of a known error: cause and cure stand above its last lines", async () => {
  deployment({});
  handle = (_request, response) => {
    deployment({ status: "exited", exitCode: 1, log: `${memory}\nEngineDeadError: see above` });
    json(response, 503, {});
  };
  const { code, stderr } = await waitForDeployment(60);
  expect(code).toBe(1);
  expect(stderr).toBe(
    `0 s: starting the engine\n${memoryExplained}${memory}\nEngineDeadError: see above\n\n` +
      "the engine died: container dgx-spark-dev-server is exited, exit code 1, restarted 0 times. " +
      "Its last lines are above; all of them: docker logs dgx-spark-dev-server\n" +
      `The first errors in its log:\n  ${memory}\n  EngineDeadError: see above\n` +
      "The container was stopped, or it would restart for ever; the next `pulumi up` starts it again.\n",
  );
  // Errors of an earlier life explain nothing.
  for (const container of ["dgx-spark-dev-server", "dgx-spark-dev-ray"])
    expect(calls("logs")).toContainEqual(["logs", "--since", "2026-01-01T00:00:00.5Z", "--tail", "2000", container]);
});

test("a load that takes too long: cause and cure, from the log of Ray's container too", async () => {
  handle = unavailable;
  deployment({ log: "loading" }, `a line\n${memory}`);
  const { code, stderr } = await waitForDeployment(4);
  expect(code).toBe(1);
  expect(stderr).toBe(
    `0 s: starting the engine\n${memoryExplained}loading\n\n` +
      "tiny did not answer within 4 s; it got as far as: starting the engine\n" +
      "The last answer: /v1/models: status 503: {}\n",
  );
});

test.each([
  [70, false],
  [150, true],
])("an engine that has waited %i s for a place for its ranks", async (waited, ends) => {
  handle = unavailable;
  deployment({ log: `INFO [ray_utils.py:467] Waiting for creating a placement group of specs for ${waited} seconds.` });
  const { code, stderr } = await waitForDeployment(3);
  expect(code).toBe(1);
  // It is followed in the output for as long as it goes on.
  expect(stderr.includes(`s: waiting for a place for every rank, ${waited} s\n`)).toBe(!ends);
  expect(stderr.includes(`the engine has waited ${waited} s for a node that left Ray's cluster.`)).toBe(ends);
  expect(stderr.includes("tiny did not answer within 3 s")).toBe(!ends);
  expect(stderr.includes("(ray-placement-wait)")).toBe(ends);
});

test.each([
  ["exited", true],
  ["restarting", false],
])("Ray's container beside the engine is %s", async (status, ends) => {
  handle = unavailable;
  deployment({ log: "loading" }, "Ray's last line", status);
  const { code, stderr } = await waitForDeployment(24);
  expect(code).toBe(1);
  expect(
    stderr.endsWith(
      "Ray's last line\n\nRay's container on this node, dgx-spark-dev-ray, is exited and was not started again for 20 s: " +
        "the engine waits for it. Bring it back: pulumi up --refresh\n",
    ),
  ).toBe(ends);
  expect(stderr.includes("tiny did not answer within 24 s")).toBe(!ends);
});

test.each([
  ["a load ago", "2025-12-31 23:59:59,999", false],
  ["during this load", "2026-01-01 00:00:00,700", true],
])("what Ray's own processes wrote %s", async (_, time, counts) => {
  handle = unavailable;
  deployment({ log: "loading" });
  const told = box.write(
    "gcs.log",
    `[${time} W 60 60] health check failed due to missing too many heartbeats\nof a node\n`,
  );
  box.write(
    "docker-world/exec",
    `#!/bin/sh
case "$1 $2" in *printenv) echo ${key} ;; "dgx-spark-dev-ray sh") cat '${told}' ;; esac
`,
    0o755,
  );
  const { code, stderr } = await waitForDeployment(4);
  expect(code).toBe(1);
  expect(stderr.includes("cause: Ray lost a node")).toBe(counts);
  expect(stderr.includes("(ray-heartbeats)\n  seen: [")).toBe(counts);
  expect(stderr).toMatch(counts ? /\n\nloading\n\ntiny did not/ : /^0 s: starting the engine\nloading\n\ntiny did not/);
});

test("a log that is no UTF-8 is shown as far as it can be", async () => {
  handle = (_request, response) => {
    engine({ status: "exited", exitCode: 1, log: "bytes \udcff\udcfe\nRuntimeError: bad \udcff byte" });
    json(response, 503, {});
  };
  engine({ status: "running", log: "\udcffApplication startup complete" });
  const { code, stderr } = await waitForServer();
  expect(code).toBe(1);
  expect(stderr).toContain("bytes \ufffd\ufffd\nRuntimeError: bad \ufffd byte\n\nthe engine died: ");
  expect(stderr).toContain("The first errors in its log:\n  RuntimeError: bad \ufffd byte\n");
  expect(stderr).not.toContain("Traceback");
});

const refuse =
  (status: number): Handler =>
  (_, response) => {
    response.writeHead(status).end("No chat template. ".repeat(40));
  };

test.each<[string, Handler]>([
  ["/v1/models", refuse(404)],
  ["/v1/chat/completions", api(refuse(404))],
])("%s that keeps refusing ends the gate early, with its answer", async (url, handler) => {
  handle = handler;
  const { code, stdout, stderr } = await waitForServer(50);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(
    new RegExp(
      `\\nthe server keeps refusing, [5-9] times in a row: ${url}: status 404: ${"No chat template. ".repeat(40).slice(0, 400)}\n$`,
    ),
  );
});

test("refusals that change, or are the server's own trouble, do not end the gate", async () => {
  let asked = 0;
  handle = api((request, response) => {
    asked += 1;
    const status = [400, 400, 400, 404, 400, 503, 400][asked - 1];
    if (status === undefined) json(response, 200, completion({ content: "hello" }));
    else refuse(status)(request, response);
  });
  expect(await waitForServer(50)).toMatchObject({ code: 0 });
  expect(asked).toBe(8);
});

test.each<[string, unknown, string]>([
  ["no usage", { choices: [] }, '{"choices": []}'],
  ["a usage of nothing", { usage: null }, '{"usage": null}'],
  ["a list", [1], "[1]"],
  ["tokens in words", { usage: { completion_tokens: "3" } }, '{"usage": {"completion_tokens": "3"}}'],
])("an answer with %s is not ready, and the last answer is told", async (_, answer, told) => {
  handle = api((_request, response) => {
    json(response, 200, answer);
  });
  const { code, stderr } = await waitForServer(4);
  expect(code).toBe(1);
  expect(stderr).toBe(
    "0 s: starting the engine\n\n\ntiny did not answer within 4 s; it got as far as: starting the engine\n" +
      `The last answer: /v1/chat/completions: status 200: ${told}\n`,
  );
});

test.each([[{}], [{ data: null }], [{ data: [{}] }], [{ data: ["tiny"] }], [[]], [{ data: { id: "tiny" } }]])(
  "/v1/models that answers %j is not ready",
  async (answer) => {
    handle = (_request, response) => {
      json(response, 200, answer);
    };
    expect(await box.run("check_served_model.py", ["server", port, "tiny"])).toEqual({
      code: 1,
      stdout: "",
      stderr: `/v1/models on port ${port} does not answer: docker logs server\n`,
    });
  },
);

test("the key goes to the server itself, whatever proxy the environment names", async () => {
  const seen: (string | undefined)[] = [];
  const proxy = await serve((request, response) => {
    seen.push(request.key);
    json(response, 200, { data: [{ id: "tiny" }] });
  });
  handle = api(() => undefined);
  const address = `http://127.0.0.1:${proxy.port}`;
  const result = await box.run("check_served_model.py", ["server", port, "tiny"], {
    http_proxy: address,
    all_proxy: address,
  });
  proxy.close();
  expect([result.code, seen]).toEqual([0, []]);
});

test("a listener that does not speak HTTP is no answer", async () => {
  const listener = net.createServer((socket) => {
    socket.on("error", () => undefined);
    socket.end("SSH-2.0-OpenSSH_9.6\r\n");
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const other = String((listener.address() as AddressInfo).port);
  const { code, stdout, stderr } = await box.run("wait_for_server.py", ["server", other, "tiny", "1"]);
  listener.close();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toMatch(/\nThe last answer: \/v1\/models: no answer: SSH-2\.0-OpenSSH_9\.6\s*\n$/);
});

test.each(["passes", "is ended"])("no reader of the log is left when the gate %s", async (how) => {
  engine({ status: "running", follow: true });
  const pid = () => (fs.existsSync(path.join(box.docker, "follow.pid")) ? box.read("docker-world/follow.pid") : "");
  // The answer waits for the reader, so that there is one.
  handle = api((_, response) => {
    void until(() => pid().endsWith("\n")).then(() => {
      if (how === "passes") json(response, 200, completion({ content: "hello" }));
    });
  });
  const gate = ["python3", "-B", path.resolve("scripts/remote/wait_for_server.py"), "server", port, "tiny", "30"];
  // `timeout --foreground` signals the gate alone, not its group.
  const { code } = await box.exec(how === "passes" ? gate : ["timeout", "--foreground", "4", ...gate]);
  expect(code).toBe(how === "passes" ? 0 : 124);
  const left = () => processes((id) => id === pid().trim());
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect([pid().endsWith("\n"), left()]).toEqual([true, []]);
});

test("a container that is not there ends the gate", async () => {
  box.write("docker-world/containers.json", {});
  expect(await waitForServer()).toMatchObject({
    code: 1,
    stdout: "",
    stderr: "container server: Error: No such object: server\n",
  });
});

test.each([
  [
    "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:10<00:10, 6.47s/it]",
    "loading weights: 50 %, 2 of 4 files",
  ],
  [
    "Loading safetensors checkpoint shards:  25% Completed | 1/4\rLoading safetensors checkpoint shards:  75% Completed | 3/4",
    "loading weights: 75 %, 3 of 4 files",
  ],
  [
    "(RayWorkerWrapper pid=2786) Model loading took 57.57 GiB memory and 284.023674 seconds",
    "weights loaded: 57.57 GiB in 284.023674 s",
  ],
  ["Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|####      | 14/35", "capturing CUDA graphs: 40 %"],
  ["GPU KV cache size: 15,948,274 tokens", "KV cache: 15,948,274 tokens"],
  [
    "init engine (profile, create kv cache, warmup model) took 62.15 s (compilation: 14.25 s)",
    "engine ready after 62.15 s",
  ],
  ["Free memory on device (110/121 GiB) on startup.", "starting the engine"],
])("the log line %j is shown as %j", async (log, shown) => {
  handle = (_request, response) => {
    json(response, 503, {});
  };
  engine({ status: "running", log });
  expect((await waitForServer(4)).stderr).toContain(`s: ${shown}\n`);
});

const smoke = (tools = "tools") => box.run("smoke.py", ["server", port, "tiny", "77", tools]);
const call = { function: { name: "get_weather", arguments: '{"city": "Paris"}' } };
const answersWith = (message: Record<string, unknown>): Handler =>
  api(({ body }, response) => {
    json(response, 200, completion(body.includes("get_weather") ? { tool_calls: [call] } : message));
  });

test.each(["reasoning", "reasoning_content"])("smoke: thinking in `%s`, and a tool call", async (field) => {
  handle = answersWith({ [field]: "I think", content: "I am tiny." });
  const { code, stdout, stderr } = await smoke();
  expect([code, stderr]).toEqual([0, "tiny: 'I am tiny.'\n"]);
  expect(parseSmoke(stdout)).toEqual({ keyRequired: true, reasoning: true, toolCall: true, completionTokens: 3 });
});

test("smoke: both requests are bounded, and no tool is offered where none is to be called", async () => {
  const bounds: [unknown, boolean][] = [];
  handle = api(({ body }, response) => {
    const { max_tokens, tools } = JSON.parse(body) as { max_tokens: number; tools?: unknown };
    bounds.push([max_tokens, tools !== undefined]);
    json(response, 200, completion({ content: "I am tiny.", tool_calls: [call] }));
  });
  expect(parseSmoke((await smoke("tools")).stdout)).toMatchObject({ toolCall: true });
  expect(parseSmoke((await smoke("no-tools")).stdout)).toMatchObject({ toolCall: false, completionTokens: 3 });
  // Two at once, in any order, and one.
  expect(bounds.map(String).sort()).toEqual(["77,false", "77,false", "77,true"]);
  expect(await smoke("some")).toEqual({ code: 1, stdout: "", stderr: "tools or no-tools, not some\n" });
});

test.each<[unknown, string]>([
  [{}, "{}"],
  [{ choices: [], usage: { completion_tokens: 3 } }, '{"choices": [], "usage": {"completion_tokens": 3}}'],
  [{ choices: [{ message: {} }] }, '{"choices": [{"message": {}}]}'],
  [
    { choices: [{ message: "hi" }], usage: { completion_tokens: 3 } },
    '{"choices": [{"message": "hi"}], "usage": {"completion_tokens": 3}}',
  ],
  [completion({ content: "" }, 0), '{"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 0}}'],
])("smoke: the answer %j is refused", async (answer, told) => {
  handle = api((_request, response) => {
    json(response, 200, answer);
  });
  expect(await smoke()).toEqual({
    code: 1,
    stdout: "",
    stderr: `chat: no completion in the answer of /v1/chat/completions: status 200: ${told}\n`,
  });
});

test("smoke: a server that is gone is not an open one", async () => {
  close();
  const { code, stderr } = await smoke();
  expect(code).toBe(1);
  expect(stderr).toMatch(/^the server does not answer: \/v1\/models: no answer: .*refused/);
});

test.each([
  ["none", { content: "It rains." }],
  ["no list", { tool_calls: 3 }],
  ["one that is none", { tool_calls: [null] }],
  ["one with broken arguments", { tool_calls: [{ function: { name: "get_weather", arguments: "{" } }] }],
  ["one of another tool", { tool_calls: [{ function: { name: "get_time", arguments: '{"city": "Paris"}' } }] }],
])("smoke: no thinking, and of tool calls %s", async (_, message) => {
  handle = api((_request, response) => {
    json(response, 200, completion(message));
  });
  expect(parseSmoke((await smoke()).stdout)).toMatchObject({ reasoning: false, toolCall: false });
});

test("smoke: an API without a key is refused", async () => {
  handle = (_request, response) => {
    json(response, 200, { data: [] });
  };
  expect(await smoke()).toMatchObject({
    code: 1,
    stdout: "",
    stderr: "a request without the key got status 200, not 401: the API is open\n",
  });
});

test("the served model is looked up", async () => {
  handle = api(() => undefined);
  expect(await box.run("check_served_model.py", ["server", port, "tiny"])).toMatchObject({
    code: 0,
    stdout: '{"changed": false, "models": ["tiny"]}\n',
  });
  expect(await box.run("check_served_model.py", ["server", port, "large"])).toMatchObject({
    code: 1,
    stderr: "/v1/models names tiny, not large\n",
  });
  handle = (_request, response) => {
    json(response, 503, {});
  };
  expect(await box.run("check_served_model.py", ["server", port, "tiny"])).toMatchObject({
    code: 1,
    stderr: `/v1/models on port ${port} does not answer: docker logs server\n`,
  });
});

/** Ray's side of the fake: `docker exec -i CONTAINER python3 - ADDRESS` prints these nodes. */
function ray(answer: string): void {
  engine({ status: "running", log: "raylet started" });
  box.write("docker-world/exec", `#!/bin/sh\n${answer}\n`, 0o755);
}
const waitForRay = (seconds = 60) =>
  box.run("wait_for_ray.py", ["server", "192.168.200.12:6379", String(seconds), "192.168.200.12", "192.168.200.13"]);

test("exactly the expected Ray nodes pass the gate", async () => {
  ray(`echo '["192.168.200.13", "192.168.200.12"]'`);
  expect(await waitForRay()).toMatchObject({
    code: 0,
    stderr: "",
    stdout: '{"changed": false, "nodes": ["192.168.200.13", "192.168.200.12"]}\n',
  });
});

test.each([
  [`echo '["192.168.200.12"]'`, "missing: 192.168.200.13", "unexpected: none"],
  [`echo '["192.168.200.12", "10.1.230.180"]'`, "missing: 192.168.200.13", "unexpected: 10.1.230.180"],
  [`echo '["192.168.200.12", "192.168.200.13", "192.168.200.14"]'`, "missing: none", "unexpected: 192.168.200.14"],
  ["exit 1", "missing: 192.168.200.12, 192.168.200.13", "unexpected: none"],
])("other Ray nodes don't: %s", async (answer, missing, unexpected) => {
  ray(answer);
  const { code, stdout, stderr } = await waitForRay(3);
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(
    `raylet started\n\nafter 3 s the Ray cluster is not the one that was asked for\n  ${missing}\n  ${unexpected}\n`,
  );
});

test.each(["exited", "dead"])("a Ray head that is %s ends the gate early, and is left as it is", async (status) => {
  ray("exit 1");
  engine({ status, exitCode: 1, log: "The current node timed out during startup" });
  const { code, stderr } = await waitForRay();
  expect(code).toBe(1);
  expect(stderr).toContain(
    `The current node timed out during startup\n\nRay's head died: container server is ${status}, exit code 1`,
  );
  expect(stderr).toMatch(
    /^cause: Ray could not start on .* \(ray-start-timeout\)\n {2}seen: .*\n {2}mend: Set `nodes\[\]\.fabric\.address`.*\n\nThe current/,
  );
  expect([calls("start"), calls("stop")]).toEqual([[], []]);
});

test("a Ray head that was restarted before the gate passes it, one that restarts during it does not", async () => {
  ray(`echo '["192.168.200.12", "192.168.200.13"]'`);
  engine({ status: "running", restarts: 1 });
  expect(await waitForRay()).toMatchObject({ code: 0, stderr: "" });
  // The container restarts while its nodes are asked for.
  const later = box.write("later.json", { server: { status: "running", restarts: 2 } });
  ray(`cp '${later}' "$FAKE_DOCKER/containers.json"; exit 1`);
  engine({ status: "running", restarts: 1 });
  const { code, stderr } = await waitForRay(30);
  expect(code).toBe(1);
  expect(stderr).toContain("Ray's head died: container server is running, exit code 0, restarted 2 times");
});

test("a cluster that does not come together in time: cause and cure stand above the head's lines", async () => {
  ray("exit 1");
  engine({ status: "running", log: "Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=-9]" });
  const { code, stderr } = await waitForRay(1);
  expect(code).toBe(1);
  expect(stderr).toMatch(
    /^cause: A process of Ray died .* \(ray-process-died\)\n {2}seen: Some Ray subprocesses exited unexpectedly:\n {2}mend: .*\n\nSome Ray/,
  );
  expect(stderr).toContain("[exit code=-9]\n\nafter 1 s the Ray cluster is not the one that was asked for\n");
});

test.each(["exec sleep 50", "echo Traceback", "printf '\\377'"])(
  "a Ray that answers nothing of use: %s",
  async (answer) => {
    ray(answer);
    const { code, stderr } = await waitForRay(2);
    expect(code).toBe(1);
    expect(stderr).toBe(
      "raylet started\n\nafter 2 s the Ray cluster is not the one that was asked for\n" +
        "  missing: 192.168.200.12, 192.168.200.13\n  unexpected: none\n" +
        "Look at `docker logs server` on each missing node; the lines above are the head's.\n",
    );
  },
);

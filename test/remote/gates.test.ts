import { afterEach, beforeEach, expect, test } from "vitest";
import { parseSmoke } from "../../components/smoke";
import { json, Sandbox, serve } from "./sandbox";

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
  box.write("docker-world/containers.json", { server: state });
}

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

const waitForServer = (seconds = 2, model = "tiny") =>
  box.run("wait_for_server.py", ["server", port, model, String(seconds)]);

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
  const { code, stdout, stderr } = await waitForServer(1);
  expect(code).toBe(1);
  expect(stdout).toBe("");
  expect(stderr).toContain("tiny did not answer within 1 s; it got as far as: API up, waiting for a completion");
});

test("a server of another model is refused at once", async () => {
  handle = api(() => undefined);
  expect(await waitForServer(60, "large")).toMatchObject({ code: 1, stderr: "the server names tiny, not large\n" });
});

test.each<[string, Record<string, unknown>, string]>([
  ["exited", { status: "exited", exitCode: 1 }, "is exited, exit code 1, restarted 0 times"],
  ["was restarted", { status: "running", restarts: 1 }, "is running, exit code 0, restarted 1 times"],
])("an engine that %s ends the gate early, with its last lines", async (_, state, told) => {
  handle = (_request, response) => {
    json(response, 503, {});
  };
  engine({
    ...state,
    log: "ValueError: Free memory on device cuda:0 (52.37/121.69 GiB) on startup is less than desired",
  });
  const { code, stderr } = await waitForServer(60);
  expect(code).toBe(1);
  expect(stderr).toContain("Free memory on device cuda:0 (52.37/121.69 GiB) on startup is less than desired");
  expect(stderr).toContain(`the engine died: container server ${told}`);
});

test("a container that is not there ends the gate", async () => {
  box.write("docker-world/containers.json", {});
  expect(await waitForServer(60)).toMatchObject({
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
  expect((await waitForServer(2)).stderr).toContain(`s: ${shown}\n`);
});

const smoke = () => box.run("smoke.py", ["server", port, "tiny"]);
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

test.each([
  ["none", { content: "It rains." }],
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
const waitForRay = (seconds = 3) =>
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
  const { code, stdout, stderr } = await waitForRay();
  expect([code, stdout]).toEqual([1, ""]);
  expect(stderr).toContain(
    `raylet started\n\nafter 3 s the Ray cluster is not the one that was asked for\n  ${missing}\n  ${unexpected}\n`,
  );
});

test("a Ray head that died ends the gate early", async () => {
  ray("exit 1");
  engine({ status: "exited", exitCode: 1, log: "The current node timed out during startup" });
  const { code, stderr } = await waitForRay(60);
  expect(code).toBe(1);
  expect(stderr).toContain(
    "The current node timed out during startup\n\nRay's head died: container server is exited, exit code 1",
  );
});

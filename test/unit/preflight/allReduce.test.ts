import * as fs from "node:fs";
import { expect, test } from "vitest";
import { judgeAllReduce, runAllReduce } from "../../../components/preflight/allReduce";
import { withSsh } from "./fakeSsh";
import { settingsOf } from "./spark";

const log = (name: string) => fs.readFileSync(`test/fixtures/nccl/${name}.txt`, "utf8");
const good = log("debug-info-two-rails");
const socket = log("debug-info-net-socket-excerpt");

/** The settings' pair, with the RDMA devices that the logs name. */
function pair(change: Partial<ReturnType<typeof settingsOf>> = {}) {
  const settings = { ...settingsOf(), ...change };
  for (const { fabric } of settings.nodes) fabric.hcas = ["rocep1s0f1", "roceP2p1s0f1"];
  const [head, worker] = settings.nodes.map(({ fabric }) => fabric.address);
  const judged = (logs: [string, string], busBytesPerSecond = 19_234_567_890) =>
    judgeAllReduce({ busBytesPerSecond, logs: { [head ?? ""]: logs[0], [worker ?? ""]: logs[1] } }, settings);
  return judged;
}

test("both twins in use is what is wanted", () => {
  expect(pair()([good, good])).toEqual({
    figures: {
      backend: "nccl",
      tensorBytes: 67_108_864,
      busGigabytesPerSecond: 19.23,
      transport: { "spark-1": "NET/IB", "spark-2": "NET/IB" },
    },
    problems: [],
  });
});

test("a socket transport where RDMA devices are named is an error, of the node that fell back", () => {
  const { problems } = pair()([good, socket]);
  expect(problems.map(({ severity, node, code, expected }) => [severity, node, code, expected])).toEqual([
    ["error", "spark-2", "rdma-unused", "NET/IB over rocep1s0f1 and roceP2p1s0f1"],
  ]);
  expect(problems[0]?.found).toBe(
    "NCCL sends over sockets (TCP) and not over rocep1s0f1 and roceP2p1s0f1: far too slow",
  );
});

test("a log that names no device is an error where devices are named, and none where sockets are meant", () => {
  expect(pair()(["", good]).problems.map(({ node, code }) => [node, code])).toEqual([["spark-1", "rdma-partly"]]);
  const { figures, problems } = pair({ accelerator: "cpu" })(["", ""]);
  expect([figures?.backend, figures?.transport, problems]).toEqual(["gloo", { "spark-1": null, "spark-2": null }, []]);
});

test("the bound is held against the figure, and may be let pass", () => {
  const slow = (preflight: { allow: string[]; imageGB: number }) =>
    pair({ fabric: { minimumGBps: 20 }, preflight })([good, good]).problems;
  expect(slow({ allow: [], imageGB: 40 })).toMatchObject([
    {
      severity: "error",
      node: "spark-1",
      code: "all-reduce-slow",
      found: "19.23 GB/s",
      expected: "fabric.minimumGBps 20",
    },
  ]);
  expect(slow({ allow: ["all-reduce-slow"], imageGB: 40 })).toMatchObject([{ severity: "warning", allowed: true }]);
  expect(pair({ fabric: { minimumGBps: 19.23 } })([good, good]).problems).toEqual([]);
});

// What the head's `ssh` does, and what is found.
test.each([
  ["echo 'Welcome to DGX Spark'", "Welcome to DGX Spark"],
  [`echo Welcome; echo '{"busBytesPerSecond":1,"logs":{}}'`, 'Welcome\n{"busBytesPerSecond":1,"logs":{}}'],
  ["echo '{}'", "{}"],
  ["head -c 9999 /dev/zero | tr '\\0' x", "x".repeat(300)],
  ["exit 0", "no answer"],
  ["echo noise; echo 'all-reduce on spark-1: failed' >&2; exit 1", "all-reduce on spark-1: failed"],
  ["kill -9 $$", "ssh was ended by SIGKILL"],
])("a head that gives no figures is a problem that says what it said: %s", async (does, found) => {
  const settings = settingsOf();
  await withSsh({ [settings.nodes[0].host]: does }, async () => {
    const { figures, problems } = await runAllReduce(settings, "dev");
    expect(figures).toBeNull();
    expect(problems).toMatchObject([{ node: "spark-1", code: "all-reduce-failed", severity: "error", found }]);
  });
});

import { expect, test } from "vitest";
import { problem } from "../../../components/preflight/problem";
import { countProblems, fabricFigures, renderProblems } from "../../../components/preflight/report";
import { renderTable } from "../../../components/preflight/table";
import { healthyPair, reached } from "./spark";

const error = problem("clock-skew", "spark-2", { found: "600 s ahead", expected: "within 30 s" });
const warning = problem("page-cache", "spark-1", {
  found: "20.0 GiB free",
  expected: "103.4 GiB free",
  mend: "drop it",
});

test("problems as people read them", () => {
  expect(renderProblems([error, warning, { ...error, severity: "warning", allowed: true }])).toBe(
    `  error  spark-2  clock-skew
    found:    600 s ahead
    expected: within 30 s
    mend:     \`sudo timedatectl set-ntp true\` there (or on the operator's machine).

  warning  spark-1  page-cache
    found:    20.0 GiB free
    expected: 103.4 GiB free
    mend:     drop it

  warning  spark-2  clock-skew (an error that preflight.allow lets pass)
    found:    600 s ahead
    expected: within 30 s
    mend:     \`sudo timedatectl set-ntp true\` there (or on the operator's machine).`,
  );
  expect(renderProblems([])).toBe("");
});

test("problems counted", () => {
  expect(countProblems([])).toBe("0 errors, 0 warnings");
  expect(countProblems([error, warning])).toBe("1 error, 1 warning");
  expect(countProblems([error, error, warning, warning, warning])).toBe("2 errors, 3 warnings");
});

test("the figures of ten nodes stand in the order of the nodes", () => {
  const { probes } = healthyPair();
  const names = Array.from({ length: 11 }, (_, index) => `spark-${index + 1}`);
  const many = names.map((name, at) => ({
    ...probes[0],
    node: { ...probes[0].node, name },
    fabric: {
      listening: null,
      // As the script tells them: each begins with the next.
      peers: Object.fromEntries([...names.slice(at + 1), ...names.slice(0, at)].map((peer) => [peer, reached([6380])])),
    },
  }));
  const ways = names.flatMap((from) => names.filter((to) => to !== from).map((to) => [from, to]));
  expect(fabricFigures(many).map(({ from, to }) => [from, to])).toEqual(ways);
});

test("figures: the MTU that passed, and Gb/s", () => {
  const { probes } = healthyPair();
  const [first, second] = probes;
  Object.assign(first.fabric?.peers["spark-2"] ?? {}, { tcpBytesPerSecond: 3_921_000_000 });
  Object.assign(second.fabric?.peers["spark-1"] ?? {}, { mtuPassed: false, tcpBytesPerSecond: null });
  expect(fabricFigures(probes)).toEqual([
    { from: "spark-1", to: "spark-2", mtuBytes: 9000, tcpGigabitsPerSecond: 31.37 },
    { from: "spark-2", to: "spark-1", mtuBytes: null, tcpGigabitsPerSecond: null },
  ]);
  expect(fabricFigures([{ ...first, fabric: null }])).toEqual([]);
});

test("the table of facts and figures", () => {
  const { probes } = healthyPair();
  const [head, worker] = probes.map(({ facts }) => facts);
  if (head == null || worker == null) throw new Error("a healthy node has facts");
  const unknown = {
    ...worker,
    ...{ productName: null, architecture: null, operatingSystem: null, dgxRelease: null, kernel: null, gpu: null },
    ...{ clockSkewSeconds: null, imageDisk: null, interfaces: [], rdmaDevices: [] },
    docker: { version: null, hasNvidiaRuntime: null, failure: "denied" as const, complaint: null },
    memory: { ...worker.memory, availableBytes: null, totalBytes: null },
  };
  Object.assign(head, { clockSkewSeconds: -0.5 });
  const facts = { "spark-1": head, "spark-2": unknown };
  const overview = `\
              spark-1                                                                     spark-2
machine       NVIDIA_DGX_Spark, aarch64                                                   -, -
system        Ubuntu 24.04.4 LTS, DGX OS 7.6.0                                            -
kernel        6.17.0-1021-nvidia                                                          -
GPU           NVIDIA GB10, driver 580.159.03                                              -
memory        115.4 GiB of 121.7 GiB                                                      - of -
disk, images  651.9 GiB free                                                              -
Docker        28.5.1                                                                      denied
clock         -0.5 s off                                                                  -
interfaces    enP7s7 (MTU 1500), enP2p1s0f1np1 (MTU 9000), enp1s0f1np1 (MTU 9000)
RDMA          roceP2p1s0f0 DOWN, roceP2p1s0f1 ACTIVE, rocep1s0f0 DOWN, rocep1s0f1 ACTIVE  -`;
  const figures = `\
from     to       MTU passed  TCP Gb/s
spark-1  spark-2        9000        32
spark-2  spark-1        9000        32`;
  expect(renderTable({ facts, fabric: [] })).toBe(overview);
  unknown.notes.push("the clock: not known (x)", "the containers: not known (y)");
  const notes = "spark-2: the clock: not known (x)\nspark-2: the containers: not known (y)";
  expect(renderTable({ facts, fabric: [] })).toBe(`${overview}\n\n${notes}`);
  expect(renderTable({ facts, fabric: fabricFigures(probes) })).toBe(`${overview}\n\n${notes}\n\n${figures}`);
});

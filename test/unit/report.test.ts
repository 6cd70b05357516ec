import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import * as os from "node:os";
import * as path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  type BenchmarkLevel,
  type BenchmarkResult,
  type BenchmarkScenario,
  parseBenchmark,
} from "../../components/benchmark";
import { number } from "../../components/report/format";
import { html } from "../../components/report/html";
import { renderPage } from "../../components/report/page";
import { renderFigures } from "../../components/report/terminal";

const rate = (median: number) => ({ median, low: median * 0.95, high: median * 1.08 });
const latency = (median: number, tail = 3) => ({ ...rate(median), p90: median * 1.5, p99: median * tail });

function level(concurrency: number, tokensPerSecond: number, ttft: number): BenchmarkLevel {
  return {
    concurrency,
    requests: 2 * concurrency + 2,
    warmupRequests: 1,
    seeds: [11 * concurrency, 12 * concurrency, 13 * concurrency],
    durationSeconds: rate((concurrency * 500) / tokensPerSecond),
    requestsPerSecond: rate(tokensPerSecond / 128),
    outputTokensPerSecond: rate(tokensPerSecond),
    totalTokensPerSecond: rate(tokensPerSecond * 9),
    promptTokensPerSecond: concurrency === 1 ? rate(1024 / (ttft / 1000)) : null,
    ppTokensPerSecond: null,
    tgTokensPerSecond: null,
    ttftMilliseconds: latency(ttft),
    tpotMilliseconds: latency((1000 * concurrency) / tokensPerSecond, 1.7),
    itlMilliseconds: latency((900 * concurrency) / tokensPerSecond, 2),
  };
}

const single: BenchmarkScenario = {
  name: "single-stream",
  inputTokens: 1024,
  prefixTokens: 0,
  outputTokens: 128,
  levels: [{ ...level(1, 24, 400), itlMilliseconds: null }],
  peakConcurrency: 1,
  ended: "all levels measured",
};
const load: BenchmarkScenario = {
  name: "load",
  inputTokens: 128,
  prefixTokens: 2048,
  outputTokens: 128,
  levels: [level(1, 24, 400), level(2, 44, 600), level(4, 80, 900), level(8, 120, 2500), level(16, 118, 14000)],
  peakConcurrency: 8,
  ended: "throughput stopped growing",
};

/** A run of both scenarios, all figures per second by this factor. */
function run(startedAt: string, factor: number): BenchmarkResult["earlier"][number] {
  const scenarios = [single, load].map((scenario) => ({
    ...scenario,
    levels: scenario.levels.map((each) => ({
      ...each,
      outputTokensPerSecond: rate(each.outputTokensPerSecond.median * factor),
    })),
  }));
  return { startedAt, tool: "vllm-bench", scenarios };
}

const result: BenchmarkResult = {
  version: 1,
  ...run("2025-12-02T18:30:00+02:00", 1),
  method: {
    tool: "vllm bench serve 0.20.0",
    endpoint: "http-api of the head",
    driver: "spark-1",
    dataset: "random",
    model: "Qwen/Qwen3.5-122B",
    repeats: 3,
    durationSeconds: 412.5,
    tokensCountedBy: "the server",
    image: "sha256:0123456789abcdef",
    serverDigest: "fedcba9876543210",
    checks: ["tokens as many as asked for"],
    unchecked: ["the clock of the driver"],
  },
  earlier: [run("2025-11-28T09:00:00Z", 0.9), run("2025-12-01T10:15:00Z", 1.05)],
};

/** What a browser shows as text, in the order of the page, one space between. */
const words = (page: string) =>
  page
    .replace(/<style.*?<\/style>/gs, "")
    .replace(/<[^>]*>/g, " ")
    .replace(/\s+/g, " ");
const count = (text: string, part: string) => text.split(part).length - 1;
const withModel = (model: string) => ({ ...result, method: { ...result.method, model } });

test("the fixture is of the benchmark's form", () => {
  expect(parseBenchmark(JSON.stringify(result))).toEqual(result);
});

test.each([
  [0.123, "0.12"],
  [9.87, "9.87"],
  [12.34, "12.3"],
  [412.5, "413"],
  [12345.6, "12346"],
])("%f is shown as %s", (value, shown) => {
  expect(number(value)).toBe(shown);
});

test("HTML escapes what is filled in, once", () => {
  expect(html`<b title="${`"'`}">${"<&>"} ${1} ${html`<i>${"&"}</i>`}</b>`.text).toBe(
    '<b title="&quot;&#39;">&lt;&amp;&gt; 1 <i>&amp;</i></b>',
  );
});

describe("the page", () => {
  const page = renderPage(result);

  test("loads nothing", () => {
    const namespaces = ["http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"];
    expect(new Set(page.match(/https?:\/\/[^"'\s]*/g))).toEqual(new Set(namespaces));
    expect(page).not.toMatch(/<script|<link|<img|<iframe|@import|url\((?!#)|\ssrc=|\shref=/i);
    expect(page).toContain("default-src 'none'");
  });

  test("names the model, the time in UTC and the whole method", () => {
    expect(page).toContain("<title>Benchmark of Qwen/Qwen3.5-122B</title>");
    const shown = words(page);
    expect(shown).toContain("Started at 2025-12-02 16:30 UTC");
    expect(shown).toContain(
      "Method Model Qwen/Qwen3.5-122B Tool vllm bench serve 0.20.0 Endpoint http-api of the head Driver spark-1 " +
        "Dataset random Repeats of each level 3 Duration (s) 412.5 Tokens counted by the server " +
        "Image of the server sha256:0123456789abcdef Digest of the server fedcba9876543210 " +
        "Checked tokens as many as asked for Not checked the clock of the driver Scenarios",
    );
  });

  test("has a load curve for the scenario with levels, and none for the one without", () => {
    expect(count(page, "Load curve.")).toBe(1);
    expect(words(page)).toContain(
      "Load curve. Most output tokens/s with 8 at once; ended: throughput stopped growing.",
    );
    // One load curve, latency of two scenarios, the last runs.
    expect(count(page, "<svg")).toBe(4);
    const one = renderPage({ ...result, scenarios: [single] });
    expect(one).not.toContain("Load curve.");
    expect(count(one, "<svg")).toBe(2);
  });

  test("has a unit on every axis, and tells which are logarithmic", () => {
    const axes = [...page.matchAll(/<text[^>]*>([^<]*(?:tokens\/s|\(ms|\(requests|UTC)[^<]*)<\/text>/g)].map(
      ([, text]) => text,
    );
    const requests = "concurrency (requests)";
    expect(axes.sort()).toEqual(
      [
        // The latency of the scenario with one level, whose ITL was not seen.
        ...[requests, "TTFT (ms)", requests, "TPOT (ms)"],
        // The load curve.
        ...[requests, "output tokens/s", requests, "TTFT (ms), log scale"],
        // The latency of the other: the times to the first token are far apart.
        ...[requests, "TTFT (ms), log scale", requests, "TPOT (ms)", requests, "ITL (ms)"],
        // The last runs.
        ...["start of the run (UTC)", "output tokens/s at the peak"],
      ].sort(),
    );
  });

  test("has an error bar of three lines for each level of the load curve, and for each scenario of each run", () => {
    expect(count(page, 'stroke-width="1.5"')).toBe(3 * (load.levels.length + 3 * 2));
  });

  test("shows the runs oldest first, and the scenarios with their lengths", () => {
    const shown = words(page);
    const chart = shown.slice(shown.indexOf("Last runs"), shown.indexOf("All figures"));
    expect(chart.match(/\d{4}-\d\d-\d\d|\d\d:\d\d/g)).toEqual([
      ...["2025-11-28", "09:00"],
      ...["2025-12-01", "10:15"],
      ...["2025-12-02", "16:30"],
    ]);
    expect(chart).toContain("single-stream (1024 in, 128 out)");
    expect(chart).toContain("load (2048 shared + 128 in, 128 out)");
  });

  test("without an earlier run by the same tool says so, and has no chart of them", () => {
    const others = result.earlier.map((each) => ({ ...each, tool: "llama-benchy" as const }));
    for (const earlier of [[], others]) {
      const first = renderPage({ ...result, earlier });
      expect(first).toContain("There is no earlier run of this deployment by this tool.");
      expect(count(first, "<svg")).toBe(3);
    }
    expect(page).not.toContain("There is no earlier run");
  });

  test("has every figure of every level in its tables", () => {
    const shown = words(page);
    const tables = shown.slice(shown.indexOf("All figures"));
    expect(tables).toContain(
      "single-stream (1024 in, 128 out) concurrency (requests) 1 (peak) requests of a repeat 4 warm-up requests 1 " +
        "seeds 11, 12, 13 duration (s) 20.8 [19.8–22.5] requests/s 0.19 [0.18–0.20] output tokens/s 24.0 [22.8–25.9] " +
        "total tokens/s 216 [205–233] prompt tokens/s 2560 [2432–2765] pp tokens/s – tg tokens/s – TTFT p50 (ms) 400 [380–432] TTFT p90 (ms) 600 " +
        "TTFT p99 (ms) 1200 TPOT p50 (ms) 41.7 [39.6–45.0] TPOT p90 (ms) 62.5 TPOT p99 (ms) 70.8 " +
        "ITL p50 (ms) – ITL p90 (ms) – ITL p99 (ms) –",
    );
    expect(tables).toContain("concurrency (requests) 1 2 4 8 (peak) 16 ");
    expect(tables).toContain("prompt tokens/s 2560 [2432–2765] – – – – pp tokens/s – – – – – tg");
  });

  test("says where ITL was not seen: in words if nowhere, at its level else", () => {
    expect(count(page, "ITL was not seen")).toBe(1);
    const levels = load.levels.map((each) => (each.concurrency === 4 ? { ...each, itlMilliseconds: null } : each));
    const some = renderPage({ ...result, scenarios: [{ ...load, levels }] });
    expect(some).not.toContain("ITL was not seen");
    expect(some.match(/<text[^>]*>–<\/text>/g)).toHaveLength(1);
  });

  test("escapes the names that people gave", () => {
    const name = '<script>alert("1")</script>';
    const hostile = renderPage({
      ...withModel(name),
      scenarios: [single, { ...load, name }],
      earlier: [{ ...result, scenarios: [{ ...load, name }] }],
    });
    expect(hostile).not.toContain("<script");
    expect(hostile).toContain("<title>Benchmark of &lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;</title>");
  });
});

test("the terminal's table has the figures of each level", () => {
  const two = { ...load, levels: load.levels.slice(3) };
  expect(renderFigures({ ...result, scenarios: [single, two] })).toBe(
    [
      "scenario       concurrency  requests  output tokens/s   TTFT p50 ms  TTFT p99 ms  TPOT p50 ms  TPOT p99 ms  ITL p50 ms",
      "single-stream            1         4  24.0 [22.8–25.9]          400         1200         41.7         70.8           –",
      "load                     8        18  120 [114–130]            2500         7500         66.7          113        60.0",
      "load                    16        34  118 [112–127]           14000        42000          136          231         122",
    ].join("\n"),
  );
  const levels = load.levels
    .slice(0, 2)
    .map((each) => ({ ...each, ppTokensPerSecond: rate(2000), tgTokensPerSecond: rate(25) }));
  const chat = renderFigures({ ...result, tool: "llama-benchy", scenarios: [{ ...load, levels }] });
  expect(chat.split("\n").map((line) => line.slice(113))).toEqual([
    "  pp tokens/s       tg tokens/s",
    "  2000 [1900–2160]  25.0 [23.8–27.0]",
    "  2000 [1900–2160]  25.0 [23.8–27.0]",
  ]);
});

describe("the command", () => {
  let folder: string;
  beforeEach(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), "report-"));
    fs.mkdirSync(path.join(folder, "bin"));
    fs.mkdirSync(path.join(folder, "project"));
  });
  afterEach(() => {
    fs.rmSync(folder, { recursive: true });
  });

  const project = () => fs.readdirSync(path.join(folder, "project"));
  const calls = () => fs.readFileSync(path.join(folder, "calls"), "utf8");

  /** Runs it with a pulumi that has these outputs, and the stack acme/serving/dev selected. */
  function report(outputs: unknown, ...args: string[]) {
    fs.writeFileSync(path.join(folder, "outputs.json"), JSON.stringify(outputs));
    fs.writeFileSync(
      path.join(folder, "bin/pulumi"),
      `#!/bin/sh
echo "$@" >>${folder}/calls
case "$*" in
  *--show-name*) echo acme/serving/dev ;;
  *"--stack gone"*) echo "error: no stack named 'gone' found" >&2; exit 255 ;;
  *) cat ${folder}/outputs.json ;;
esac
`,
      { mode: 0o755 },
    );
    return spawnSync("scripts/report", ["-C", path.join(folder, "project"), ...args], {
      encoding: "utf8",
      env: { ...process.env, PATH: `${folder}/bin:${process.env["PATH"] ?? ""}` },
    });
  }

  test("writes the page beside the selected stack, prints the table, and asks for no secret", () => {
    const { status, stdout, stderr } = report({ benchmark: result, apiKey: "[secret]" });
    const file = path.join(folder, "project/benchmark-dev.html");
    expect([status, stderr]).toEqual([0, ""]);
    expect(stdout).toBe(`${renderFigures(result)}\n\nThe charts: ${file}\n`);
    expect(project()).toEqual(["benchmark-dev.html"]);
    expect(words(fs.readFileSync(file, "utf8"))).toBe(words(renderPage(result)));
    const on = `-C ${path.join(folder, "project")} stack`;
    expect(calls()).toBe(`${on} --show-name\n${on} output --json --stack acme/serving/dev\n`);
  });

  test("writes the page where it is asked to, in place of the old one", () => {
    const file = path.join(folder, "project/page.html");
    fs.writeFileSync(file, "old");
    expect(report({ benchmark: result }, "--stack", "lab", "--output", file).status).toBe(0);
    expect(fs.readFileSync(file, "utf8")).toContain("<!doctype html>");
    expect(project()).toEqual(["page.html"]);
    expect(calls()).toBe(`-C ${path.join(folder, "project")} stack output --json --stack lab\n`);
  });

  test.each([
    [
      "no benchmark",
      {},
      [],
      "report: stack acme/serving/dev has no benchmark: set benchmark.enabled to true, and run `pulumi up`\n",
    ],
    ["no such stack", {}, ["-s", "gone"], "report: error: no stack named 'gone' found\n"],
  ])("with %s says so in one line, ends with 2, and writes nothing", (_, outputs, args, message) => {
    const { status, stdout, stderr } = report(outputs, ...args);
    expect([status, stdout, stderr]).toEqual([2, "", message]);
    expect(project()).toEqual([]);
  });

  test("with a benchmark of another version says what is different, without a stack trace", () => {
    const { status, stderr } = report({ benchmark: { ...result, version: 2 } });
    expect(status).toBe(2);
    expect(stderr).toMatch(
      /^report: the benchmark of stack acme\/serving\/dev is not of this version: run `pulumi up`\n/,
    );
    expect(stderr).toContain("at version");
    expect(stderr).not.toMatch(/^\s+at .*:\d+/m);
  });

  test("a folder that is not there to write to is named", () => {
    const { status, stderr } = report({ benchmark: result }, "-o", `${folder}/none/page.html`);
    expect(status).toBe(2);
    expect(stderr).toContain(`${folder}/none/page.html`);
    expect(stderr.trim().split("\n")).toHaveLength(1);
  });
});

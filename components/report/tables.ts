import type { BenchmarkLevel, BenchmarkResult, BenchmarkScenario } from "../benchmark";
import { none, number, range } from "./format";
import { type Html, html } from "./html";

type Method = BenchmarkResult["method"];
type Latency = "ttftMilliseconds" | "tpotMilliseconds" | "itlMilliseconds";

const methodNames: Record<Exclude<keyof Method, "checks" | "unchecked">, string> = {
  model: "Model",
  tool: "Tool",
  endpoint: "Endpoint",
  driver: "Driver",
  dataset: "Dataset",
  repeats: "Repeats of each level",
  durationSeconds: "Duration (s)",
  tokensCountedBy: "Tokens counted by",
  image: "Image of the server",
  serverDigest: "Digest of the server",
};

const figures: readonly [name: string, of: (level: BenchmarkLevel) => string][] = [
  ["requests of a repeat", ({ requests }) => String(requests)],
  ["warm-up requests", ({ warmupRequests }) => String(warmupRequests)],
  ["seeds", ({ seeds }) => seeds.join(", ")],
  ["duration (s)", ({ durationSeconds }) => range(durationSeconds)],
  ["requests/s", ({ requestsPerSecond }) => range(requestsPerSecond)],
  ["output tokens/s", ({ outputTokensPerSecond }) => range(outputTokensPerSecond)],
  ["total tokens/s", ({ totalTokensPerSecond }) => range(totalTokensPerSecond)],
  ["prompt tokens/s", ({ promptTokensPerSecond }) => range(promptTokensPerSecond)],
  ["pp tokens/s", ({ ppTokensPerSecond }) => range(ppTokensPerSecond)],
  ["tg tokens/s", ({ tgTokensPerSecond }) => range(tgTokensPerSecond)],
  ...percentiles("TTFT", "ttftMilliseconds"),
  ...percentiles("TPOT", "tpotMilliseconds"),
  ...percentiles("ITL", "itlMilliseconds"),
];

function percentiles(name: string, key: Latency): [string, (level: BenchmarkLevel) => string][] {
  const of = (percentile: "p90" | "p99") => (level: BenchmarkLevel) => {
    const latency = level[key];
    return latency === null ? none : number(latency[percentile]);
  };
  return [
    [`${name} p50 (ms)`, (level) => range(level[key])],
    [`${name} p90 (ms)`, of("p90")],
    [`${name} p99 (ms)`, of("p99")],
  ];
}

/** How it was measured, what was held against the figures, and what could not be. */
export function methodTable(method: Method): Html {
  const names = Object.keys(methodNames) as (keyof typeof methodNames)[];
  const list = (items: readonly string[]) =>
    items.length === 0
      ? html`${none}`
      : html`<ul>
          ${items.map((item) => html`<li>${item}</li>`)}
        </ul>`;
  return html`<table class="method">
    ${names.map(
      (name) =>
        html`<tr>
          <th>${methodNames[name]}</th>
          <td>${method[name]}</td>
        </tr>`,
    )}
    <tr>
      <th>Checked</th>
      <td>${list(method.checks)}</td>
    </tr>
    <tr>
      <th>Not checked</th>
      <td>${list(method.unchecked)}</td>
    </tr>
  </table>`;
}

/** Every figure of a scenario, a column a level; those with a range are median [lowest–highest] of the repeats. */
export function figuresTable({ levels, peakConcurrency }: BenchmarkScenario): Html {
  const head = levels.map(
    ({ concurrency }) => html`<th>${concurrency}${concurrency === peakConcurrency ? " (peak)" : ""}</th>`,
  );
  const rows = figures.map(
    ([name, of]) =>
      html`<tr>
        <th>${name}</th>
        ${levels.map((level) => html`<td>${of(level)}</td>`)}
      </tr>`,
  );
  return html`<div class="wide">
    <table class="figures">
      <thead>
        <tr>
          <th>concurrency (requests)</th>
          ${head}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`;
}

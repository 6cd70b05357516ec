import type { BenchmarkResult, BenchmarkScenario } from "../benchmark";
import { scenarioTitle, time } from "./format";
import { history } from "./history";
import { Html, html } from "./html";
import { latencyBars } from "./latencyBars";
import { loadCurve } from "./loadCurve";
import { figuresTable, methodTable } from "./tables";

const style = new Html(`
body { margin: 2rem auto; padding: 0 1rem; max-width: 960px; font: 15px/1.5 sans-serif; color: #1d1f23; background: #fff; }
h1, h2, h3 { line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d9dce1; padding-bottom: 0.25rem; }
svg { display: block; max-width: 100%; height: auto; }
figure { margin: 1rem 0 2rem; }
figcaption { margin-bottom: 0.5rem; color: #54585f; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 0.25rem 0.5rem; border-bottom: 1px solid #d9dce1; text-align: left; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
.method td { overflow-wrap: anywhere; }
.method ul { margin: 0; padding-left: 1.1rem; }
.figures td, .figures thead th + th { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.wide { overflow-x: auto; }
`);

/** The page of a benchmark: one HTML document that loads nothing. */
export function renderPage(result: BenchmarkResult): string {
  const { method, scenarios, earlier, startedAt } = result;
  const title = `Benchmark of ${method.model}`;
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'" />
        <title>${title}</title>
        <style>
          ${style}
        </style>
      </head>
      <body>
        <h1>${title}</h1>
        <p>
          Started at ${time(startedAt)} UTC. TTFT: time to the first token; TPOT: time per output token after the first;
          ITL: time between two tokens; p50: the median. Prompts and outputs are so many tokens long as each scenario's
          title tells.
        </p>
        <h2>Method</h2>
        ${methodTable(method)}
        <h2>Scenarios</h2>
        ${scenarios.map(scenarioCharts)}
        <h2>Last runs</h2>
        ${lastRuns([...earlier.filter(({ tool }) => tool === result.tool), result])}
        <h2>All figures</h2>
        <p>
          Figures with a range are the median of the repeats, and the lowest and the highest of them. p90 and p99 are of
          all requests of all repeats. –: there is no such figure.
        </p>
        ${scenarios.map(
          (scenario) =>
            html`<h3>${scenarioTitle(scenario)}</h3>
              ${figuresTable(scenario)}`,
        )}
      </body>
    </html> `.text;
}

function scenarioCharts(scenario: BenchmarkScenario): Html {
  const { levels, ended, peakConcurrency } = scenario;
  const load = html`<figure>
    <figcaption>Load curve. Most output tokens/s with ${peakConcurrency} at once; ended: ${ended}.</figcaption>
    ${loadCurve(scenario)}
  </figure>`;
  const unseen = levels.every(({ itlMilliseconds }) => itlMilliseconds === null)
    ? " ITL was not seen: several tokens came at once."
    : "";
  return html`<h3>${scenarioTitle(scenario)}</h3>
    ${levels.length > 1 ? load : ""}
    <figure>
      <figcaption>Latency.${unseen}</figcaption>
      ${latencyBars(scenario)}
    </figure>`;
}

function lastRuns(runs: BenchmarkResult["earlier"]): Html {
  if (runs.length === 1) return html`<p>There is no earlier run of this deployment by this tool.</p>`;
  return html`<figure>
    <figcaption>
      Each scenario's peak, with the range of the repeats. Runs stand side by side, however long is between them.
    </figcaption>
    ${history(runs)}
  </figure>`;
}

import type { BarSeriesOption } from "echarts";
import type { BenchmarkScenario } from "../benchmark";
import { categories, figures } from "./axes";
import { margin, panelAt, percentileColors, renderChart } from "./chart";
import { none } from "./format";
import type { Html } from "./html";

const times = [
  ["TTFT (ms)", "ttftMilliseconds"],
  ["TPOT (ms)", "tpotMilliseconds"],
  ["ITL (ms)", "itlMilliseconds"],
] as const;

const percentiles = [
  ["p50", "median"],
  ["p90", "p90"],
  ["p99", "p99"],
] as const;

/** Median, p90 and p99 of each time of each level, in milliseconds; a time that no level has is left out. */
export function latencyBars({ levels }: BenchmarkScenario): Html {
  const panels = times
    .map(([name, key]) => ({ name, latencies: levels.map((level) => level[key]) }))
    .filter(({ latencies }) => latencies.some((latency) => latency !== null));
  const series = panels.flatMap(({ latencies }, panel) =>
    percentiles.map(([name, key]): BarSeriesOption => ({
      type: "bar",
      name,
      color: percentileColors[name],
      xAxisIndex: panel,
      yAxisIndex: panel,
      data: latencies.map((latency) => latency?.[key] ?? null),
      barMaxWidth: 24,
      silent: true,
    })),
  );
  return renderChart(
    {
      legend: { left: margin.left, top: 0, selectedMode: false, data: percentiles.map(([name]) => name) },
      grid: panels.map((_, panel) => panelAt(panel, times.length, 40)),
      xAxis: panels.map(({ latencies }, panel) =>
        categories(
          "concurrency (requests)",
          levels.map(({ concurrency }, level) => `${concurrency}${latencies[level] === null ? `\n${none}` : ""}`),
          panel,
        ),
      ),
      yAxis: panels.map(({ name, latencies }, panel) =>
        figures(
          name,
          latencies.flatMap((latency) => (latency === null ? [] : [latency.median, latency.p90, latency.p99])),
          panel,
        ),
      ),
      series,
    },
    280,
  );
}

import type { LineSeriesOption } from "echarts";
import type { BenchmarkScenario } from "../benchmark";
import { doublings, figures } from "./axes";
import { chartWidth, margin, panelAt, percentileColors, renderChart } from "./chart";
import type { Html } from "./html";
import { type Range, rangeBars } from "./rangeBars";

const throughputName = "median, and range of the repeats";
const throughputColor = "#b3541e";

/** Output tokens/s, and the time to the first token in milliseconds, over the requests under way at once. */
export function loadCurve({ levels, peakConcurrency }: BenchmarkScenario): Html {
  const over = (pick: (level: (typeof levels)[number]) => number) =>
    levels.map((level): [number, number] => [level.concurrency, pick(level)]);
  const throughput = over((level) => level.outputTokensPerSecond.median);
  const p50 = over((level) => level.ttftMilliseconds.median);
  const p99 = over((level) => level.ttftMilliseconds.p99);
  const ranges = levels.map(({ concurrency, outputTokensPerSecond: { low, high } }): Range => [concurrency, low, high]);
  const line = (name: string, data: [number, number][], color: string, panel: number): LineSeriesOption => ({
    type: "line",
    name,
    data,
    color,
    xAxisIndex: panel,
    yAxisIndex: panel,
    symbol: "circle",
    symbolSize: 7,
    silent: true,
  });
  return renderChart(
    {
      legend: [
        { left: margin.left, top: 0, selectedMode: false, data: [throughputName] },
        { left: chartWidth / 2 + margin.left, top: 0, selectedMode: false, data: ["TTFT p50", "TTFT p99"] },
      ],
      grid: [0, 1].map((panel) => panelAt(panel, 2, 56)),
      xAxis: [0, 1].map((panel) => doublings("concurrency (requests)", panel)),
      yAxis: [
        figures(
          "output tokens/s",
          ranges.flatMap(([, low, high]) => [low, high]),
          0,
        ),
        figures(
          "TTFT (ms)",
          [...p50, ...p99].map(([, milliseconds]) => milliseconds),
          1,
        ),
      ],
      series: [
        {
          ...line(throughputName, throughput, throughputColor, 0),
          markLine: {
            silent: true,
            symbol: "none",
            data: [{ xAxis: peakConcurrency }],
            label: { formatter: "peak" },
            lineStyle: { color: "#777777" },
          },
        },
        rangeBars(ranges, throughputColor, 0),
        line("TTFT p50", p50, percentileColors.p50, 1),
        line("TTFT p99", p99, percentileColors.p99, 1),
      ],
    },
    340,
  );
}

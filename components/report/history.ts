import type { LineSeriesOption } from "echarts";
import { type BenchmarkFigures, levelOf } from "../benchmark";
import { categories, figures } from "./axes";
import { margin, panelAt, renderChart } from "./chart";
import { scenarioTitle, time } from "./format";
import type { Html } from "./html";
import { type Range, rangeBars } from "./rangeBars";

const colors = ["#b3541e", "#12345c", "#3a8f5c", "#8a4fa3", "#c79a00", "#3d7fc1", "#a33b52", "#5c6470"];

/** Output tokens/s of each scenario's peak in each run, oldest first. */
export function history(runs: readonly BenchmarkFigures[]): Html {
  const titles = [...new Set(runs.flatMap(({ scenarios }) => scenarios.map(scenarioTitle)))];
  const peaks = titles.map((title) =>
    runs.map((run) => {
      const scenario = run.scenarios.find((each) => scenarioTitle(each) === title);
      return scenario && levelOf(run, scenario.name)?.outputTokensPerSecond;
    }),
  );
  const series = titles.flatMap((title, index) => {
    const color = colors[index % colors.length] ?? "";
    const rates = peaks[index] ?? [];
    const ranges = rates.flatMap((rate, run): Range[] => (rate ? [[run, rate.low, rate.high]] : []));
    const line: LineSeriesOption = {
      type: "line",
      name: title,
      color,
      data: rates.map((rate) => rate?.median ?? null),
      symbol: "circle",
      symbolSize: 7,
      silent: true,
    };
    return [line, rangeBars(ranges, color, 0)];
  });
  const legendHeight = 24 * titles.length;
  return renderChart(
    {
      legend: {
        orient: "vertical",
        left: margin.left,
        top: 0,
        itemGap: 8,
        selectedMode: false,
        textStyle: { width: 820, overflow: "truncate" },
      },
      grid: panelAt(0, 1, legendHeight + 16),
      xAxis: categories(
        "start of the run (UTC)",
        runs.map(({ startedAt }) => time(startedAt).replace(" ", "\n")),
        0,
      ),
      yAxis: figures(
        "output tokens/s at the peak",
        peaks.flat().flatMap((rate) => (rate ? [rate.low, rate.high] : [])),
        0,
      ),
      series,
    },
    legendHeight + 340,
  );
}

import * as echarts from "echarts";
import { Html } from "./html";

/** Width of every chart, pixels. */
export const chartWidth = 960;

/** Colours of the median and of the percentiles, the darker the rarer. */
export const percentileColors = { p50: "#8fbce6", p90: "#3d7fc1", p99: "#12345c" };

/** Pixels beside a panel for its vertical axis, and below it for its horizontal one. */
export const margin = { left: 76, right: 20, bottom: 56 };

/** Where a panel of so many side by side is, with this much above them, pixels. */
export function panelAt(index: number, of: number, top: number): echarts.GridComponentOption {
  const each = chartWidth / of;
  return {
    left: index * each + margin.left,
    width: each - margin.left - margin.right,
    top,
    bottom: margin.bottom,
    outerBoundsMode: "none",
  };
}

/** Draws a chart as an SVG that refers to nothing outside itself. Height in pixels. */
export function renderChart(option: echarts.EChartsOption, height: number): Html {
  const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: chartWidth, height });
  try {
    chart.setOption({ animation: false, textStyle: { fontFamily: "sans-serif" }, ...option });
    return new Html(chart.renderToSVGString({ useViewBox: true }));
  } finally {
    chart.dispose();
  }
}

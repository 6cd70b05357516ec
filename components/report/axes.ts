import type { XAXisComponentOption, YAXisComponentOption } from "echarts";

/** Between the highest and the lowest figure: from here on a linear axis would hide the lowest. */
const logarithmicSpread = 20;

/** Between an axis and its name, pixels: there are two lines of labels, or up to 100,000. */
const horizontalGap = 36;
const verticalGap = 54;

const lineColor = "#d9dce1";

/** A horizontal axis with one place for each label. */
export function categories(name: string, labels: string[], gridIndex: number): XAXisComponentOption {
  return {
    type: "category",
    gridIndex,
    name,
    nameLocation: "middle",
    nameGap: horizontalGap,
    data: labels,
    axisTick: { show: false },
    axisLabel: { interval: 0 },
  };
}

/** A horizontal axis on which twice as much is always as far: levels of concurrency usually double. */
export function doublings(name: string, gridIndex: number): XAXisComponentOption {
  return {
    type: "log",
    logBase: 2,
    gridIndex,
    name,
    nameLocation: "middle",
    nameGap: horizontalGap,
    splitLine: { show: false },
  };
}

/** A vertical axis for these figures: from zero, or logarithmic if they are far apart, which its name tells. */
export function figures(name: string, values: readonly number[], gridIndex: number): YAXisComponentOption {
  const lowest = Math.min(...values);
  const common = {
    gridIndex,
    nameLocation: "middle",
    nameGap: verticalGap,
    splitLine: { lineStyle: { color: lineColor } },
  } as const;
  if (lowest <= 0 || Math.max(...values) <= logarithmicSpread * lowest)
    return { ...common, type: "value", name, min: 0 };
  // Half of the lowest, or its bar could have no height.
  const min = 10 ** Math.floor(Math.log10(lowest / 2));
  return { ...common, type: "log", name: `${name}, log scale`, min };
}

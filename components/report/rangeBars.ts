import type { CustomSeriesOption } from "echarts";

/** Pixels to either side of the ends. */
const cap = 5;

/** A place on the horizontal axis, and the lowest and the highest figure of the repeats there. */
export type Range = [x: number, low: number, high: number];

/** Error bars. The index is that of the panel. */
export function rangeBars(data: Range[], color: string, panel: number): CustomSeriesOption {
  return {
    type: "custom",
    silent: true,
    xAxisIndex: panel,
    yAxisIndex: panel,
    encode: { x: 0, y: [1, 2] },
    data,
    z: 3,
    renderItem: (_, api) => {
      const [x = 0, low = 0] = api.coord([api.value(0), api.value(1)]);
      const [, high = 0] = api.coord([api.value(0), api.value(2)]);
      const line = (x1: number, y1: number, x2: number, y2: number) =>
        ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: color, lineWidth: 1.5 } }) as const;
      return {
        type: "group",
        children: [line(x, low, x, high), line(x - cap, low, x + cap, low), line(x - cap, high, x + cap, high)],
      };
    },
  };
}

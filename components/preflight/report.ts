import type { NodeProbe } from "./probe";
import type { Problem } from "./problem";

/** What one node saw of another over the fabric, as the output `fabric` has it. */
export interface FabricFigures {
  from: string;
  to: string;
  mtuBytes: number | null;
  /** TCP, one stream, a tenth of a second: tells a wrong way from a right one, and not what RDMA will reach. */
  tcpGigabitsPerSecond: number | null;
}

/** Problems as people read them. */
export function renderProblems(problems: readonly Problem[]): string {
  return problems
    .map(({ code, severity, node, found, expected, mend, allowed }) =>
      [
        `  ${severity}  ${node}  ${code}${allowed ? " (an error that preflight.allow lets pass)" : ""}`,
        `    found:    ${found}`,
        `    expected: ${expected}`,
        `    mend:     ${mend}`,
      ].join("\n"),
    )
    .join("\n\n");
}

/** Whether a deployment may go on: there is no error. */
export function isReady(problems: readonly Problem[]): boolean {
  return problems.every(({ severity }) => severity !== "error");
}

/** How many there are of each, in words. */
export function countProblems(problems: readonly Problem[]): string {
  const count = (severity: Problem["severity"]) => {
    const number = problems.filter((each) => each.severity === severity).length;
    return number === 1 ? `1 ${severity}` : `${number} ${severity}s`;
  };
  return `${count("error")}, ${count("warning")}`;
}

/** The figures between all nodes that answered. */
export function fabricFigures(probes: readonly NodeProbe[]): FabricFigures[] {
  return probes.flatMap(({ node, fabric }) =>
    Object.entries(fabric?.peers ?? {})
      .map(([to, { mtuBytes, mtuPassed, tcpBytesPerSecond: rate }]) => ({
        from: node.name,
        to,
        mtuBytes: mtuPassed === true ? mtuBytes : null,
        tcpGigabitsPerSecond: rate === null ? null : Math.round((rate * 8) / 1e7) / 100,
      }))
      .sort((a, b) => a.to.localeCompare(b.to, "en", { numeric: true })),
  );
}

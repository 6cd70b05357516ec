import { codes, type Code, type ProblemCode } from "./codes";

/** One thing that is wrong, on one node or between two. */
export interface Problem {
  code: ProblemCode;
  severity: Code["severity"];
  /** The node; between two, the one that looked. */
  node: string;
  /** What was found, with the value seen. */
  found: string;
  /** What was expected. */
  expected: string;
  /** How to mend it. */
  mend: string;
  /** Whether `preflight.allow` made a warning of an error. */
  allowed: boolean;
}

/** A problem of the given code. `mend` is given where more can be said than the code's own cure. */
export function problem(
  code: ProblemCode,
  node: string,
  { found, expected, mend }: { found: string; expected: string; mend?: string },
): Problem {
  const { severity, cure } = codes[code];
  return { code, severity, node, found, expected, mend: mend ?? cure, allowed: false };
}

/** Bytes as people read them: 1 GiB = 2^30. */
export function gibibytes(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}

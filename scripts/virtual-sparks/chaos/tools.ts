import { execOn } from "../hosts";
import { must } from "../run";
import type { Node } from "../topology";

export const COMMAND_MS = 60_000;

/** Runs a program as root on a node; it has to succeed. */
export async function onNode(node: Node, ...argv: string[]): Promise<string> {
  return await must(execOn(node, argv, { timeout: COMMAND_MS }), `${node.name}: ${argv[0] ?? ""}`);
}

/** The lines of a text that are not blank. */
export function lines(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "");
}

/** Whether it comes within the time, milliseconds. */
export async function within(promise: Promise<unknown>, timeout: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => {
      resolve(false);
    }, timeout);
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer); // or the program would go on for so long
  }
}

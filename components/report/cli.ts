import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { Command } from "commander";
import { z } from "zod";
import { type BenchmarkResult, parseBenchmark } from "../benchmark";
import { renderPage } from "./page";
import { renderFigures } from "./terminal";

interface Options {
  stack?: string;
  cwd: string;
  output?: string;
}

function report({ stack, cwd, output }: Options): void {
  const pulumi = (...args: string[]) =>
    execFileSync("pulumi", ["-C", cwd, ...args], { encoding: "utf8", stdio: "pipe", maxBuffer: 1024 ** 3 });
  const name = stack ?? pulumi("stack", "--show-name").trim();
  const outputs = JSON.parse(pulumi("stack", "output", "--json", "--stack", name)) as { benchmark?: unknown };
  const result = benchmarkOf(outputs, name);
  // Of ORGANIZATION/PROJECT/STACK the last.
  const file = output ?? path.join(cwd, `benchmark-${path.basename(name)}.html`);
  writeWhole(file, renderPage(result));
  console.log(`${renderFigures(result)}\n\nThe charts: ${file}`);
}

function benchmarkOf({ benchmark }: { benchmark?: unknown }, stack: string): BenchmarkResult {
  if (benchmark === undefined) {
    throw new Error(`stack ${stack} has no benchmark: set benchmark.enabled to true, and run \`pulumi up\``);
  }
  try {
    return parseBenchmark(JSON.stringify(benchmark));
  } catch (error) {
    if (!(error instanceof z.ZodError)) throw error;
    throw new Error(
      `the benchmark of stack ${stack} is not of this version: run \`pulumi up\`\n${z.prettifyError(error)}`,
    );
  }
}

/** Whoever opens the file finds the old one or the new one, never a part. */
function writeWhole(file: string, text: string): void {
  const temporary = `${file}.${process.pid}.tmp`;
  try {
    fs.writeFileSync(temporary, text);
    fs.renameSync(temporary, file);
  } finally {
    fs.rmSync(temporary, { force: true });
  }
}

/** What a person needs to know of an error. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if ("code" in error && error.code === "ENOENT" && error.message.includes("spawnSync")) {
    return 'pulumi is not on PATH: eval "$(./scripts/setup --env)"';
  }
  // Pulumi says what is in the way, such as that there is no such stack.
  return ("stderr" in error && String(error.stderr).trim()) || error.message;
}

new Command("report")
  .description("Makes a page of charts and tables of a stack's benchmark, and prints its main figures.")
  .addHelpText("after", "\nExit codes: 0 the page is written, 2 it is not.")
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2))
  .option("-s, --stack <name>", "the stack (default: the one selected)")
  .option("-C, --cwd <folder>", "folder with Pulumi.yaml", ".")
  .option("-o, --output <file>", "the page (default: benchmark-STACK.html in the folder)")
  .action((options: Options) => {
    try {
      report(options);
    } catch (error) {
      process.stderr.write(`report: ${messageOf(error)}\n`);
      process.exitCode = 2;
    }
  })
  .parse();

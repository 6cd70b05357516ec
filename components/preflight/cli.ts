import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import * as path from "node:path";
import { Command, Option } from "commander";
import { parse } from "yaml";
import { z } from "zod";
import { parseValue } from "../configValue";
import { type Problem as Mistake, renderProblems as renderMistakes } from "../problems";
import { schema, type Settings } from "../schema";
import { checkConfiguration } from "../settings";
import { endConnections } from "../ssh";
import { runAllReduce } from "./allReduce";
import { explain } from "./explain";
import { json } from "./readFacts";
import { countProblems, isReady, renderProblems } from "./report";
import { runPreflight } from "./run";
import { renderTable } from "./table";

/** A mistake of the person at the keyboard: shown without a stack trace. */
class UsageError extends Error {}

/** Settings that are wrong: told as text, or as JSON where that was asked for. */
class ConfigurationError extends UsageError {
  constructor(readonly mistakes: readonly Mistake[]) {
    super(renderMistakes(mistakes));
  }
}

interface Options {
  stack?: string;
  cwd: string;
  json?: boolean;
  step?: "nodes" | "all-reduce";
}

const project = "dgx-spark-serving";
const fileSchema = z.looseObject({ config: z.record(z.string(), z.unknown()).nullish() });
const secretSchema = z.strictObject({ secure: z.string() });
/** What the program's own step hands over on stdin. */
const stepSchema = z.object({ deployment: z.string(), settings: schema });

/** The stack that is selected in a project's folder; asked of the CLI, which reads a file for it. */
function selectedStack(cwd: string): string {
  try {
    return execFileSync("pulumi", ["-C", cwd, "stack", "--show-name"], { encoding: "utf8", stdio: "pipe" }).trim();
  } catch (error) {
    const { code, stderr } = error as { code?: string; stderr: string | null };
    throw new UsageError(`${whyNoStack(code, (stderr ?? "").trim().replace(/^error: /, ""))} (--stack NAME)`);
  }
}

function whyNoStack(code: string | undefined, said: string): string {
  if (code === "ENOENT") return 'pulumi is not on PATH: eval "$(./scripts/setup --env)", or give the stack';
  if (said.includes("no stack selected")) return "no stack is selected here: give one";
  if (said.includes("PULUMI_ACCESS_TOKEN")) return "pulumi is not logged in: pulumi login --local, or give the stack";
  return `pulumi does not tell which stack is selected (${said}): give one`;
}

/** A stack's file: in the folder or in one above it, as pulumi looks for it. */
function stackFile(cwd: string, stack: string): string {
  const name = `Pulumi.${stack}.yaml`;
  const start = path.resolve(cwd);
  for (let folder = start, below = ""; folder !== below; below = folder, folder = path.dirname(folder)) {
    if (fs.existsSync(path.join(folder, name))) return path.join(folder, name);
  }
  throw new UsageError(
    `there is no ${name} in ${start}, nor above it: give the stack (--stack NAME), and the project's folder (--cwd DIR)`,
  );
}

/** The text of a file that a person names; undefined: what comes on stdin. */
function readText(file: string | undefined): string {
  try {
    return fs.readFileSync(file ?? 0, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") throw new UsageError(`there is no file ${file ?? ""}`);
    if (code === "EISDIR") throw new UsageError(`${file ?? "what comes on stdin"} is a folder: give a file`);
    throw new UsageError(`${file ?? "what comes on stdin"} can't be read: ${message}`);
  }
}

/** The settings in a stack's file. Secrets in it stay closed: none is needed. */
function stackSettings(cwd: string, stack: string): Settings {
  const file = stackFile(cwd, stack);
  const text = readText(file);
  let content: unknown;
  try {
    // A secret counts as text, wherever it stands.
    content = parse(text, (_key, value: unknown) => (secretSchema.safeParse(value).success ? "[secret]" : value));
  } catch (error) {
    throw new UsageError(`${file} is no YAML, correct it: ${error instanceof Error ? error.message : String(error)}`);
  }
  const read = fileSchema.safeParse(content ?? {});
  if (!read.success) {
    throw new UsageError(`${file} is no stack's file: it has to hold a map \`config\`, as Pulumi.dev.yaml does`);
  }
  const own = Object.entries(read.data.config ?? {}).filter(([key]) => key.startsWith(`${project}:`));
  const raw = Object.fromEntries(
    own.map(([key, value]) => [key.slice(project.length + 1), typeof value === "string" ? parseValue(value) : value]),
  );
  const checked = checkConfiguration(raw);
  if ("problems" in checked) throw new ConfigurationError(checked.problems);
  return checked.settings;
}

/** As a step of the program: the result is for the program alone, and what is wrong for people. */
async function runStep(step: "nodes" | "all-reduce"): Promise<boolean> {
  const handed = stepSchema.safeParse(json(fs.readFileSync(0, "utf8")));
  if (!handed.success) {
    const why = z.prettifyError(handed.error);
    throw new UsageError(`--step is the program's own: settings as JSON on stdin; by hand, leave it out\n${why}`);
  }
  const { deployment, settings } = handed.data;
  const result = await (step === "nodes" ? runPreflight(settings, deployment) : runAllReduce(settings, deployment));
  const ready = isReady(result.problems);
  if (ready) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    const untouched = step === "nodes" ? "; nothing was changed on any node" : "";
    process.stderr.write(`${countProblems(result.problems)}${untouched}.\n\n${renderProblems(result.problems)}\n`);
  }
  return ready;
}

async function runByHand({ stack, cwd, json }: Options): Promise<boolean> {
  const deployment = stack ?? selectedStack(cwd);
  const result = await runPreflight(stackSettings(cwd, deployment), deployment);
  if (json) {
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  } else {
    // Without a node that answers there is no table, and without a problem no list.
    const parts = [
      ...(Object.keys(result.facts).length > 0 ? [renderTable(result)] : []),
      renderProblems(result.problems),
    ];
    parts.push(`${countProblems(result.problems)}. Nothing was changed.`);
    process.stdout.write(`${parts.filter((part) => part !== "").join("\n\n")}\n`);
  }
  return isReady(result.problems);
}

const program = new Command("preflight")
  .description("Looks at every Spark of a stack, and tells what would go wrong. Changes nothing.")
  .addHelpText(
    "after",
    "\nExit codes: 0 no error, 1 an error on a Spark, 2 a mistake in the command or the configuration.",
  )
  .exitOverride(({ exitCode }) => process.exit(exitCode === 0 ? 0 : 2))
  .option("-s, --stack <name>", "the stack (default: the one selected)")
  .option("-C, --cwd <folder>", "folder with Pulumi.STACK.yaml, or below it", ".")
  .option("--json", "facts, problems and figures as JSON")
  .addOption(
    new Option(
      "--step <name>",
      "as a step of the program: settings as JSON on stdin, the result as JSON on stdout",
    ).choices(["nodes", "all-reduce"]),
  )
  .action(async (options: Options) => {
    const ready = await (options.step ? runStep(options.step) : runByHand(options));
    if (!ready) process.exitCode = 1;
  });

program
  .command("explain [file]")
  .description("what an engine's log, or the output of a program on a Spark, says (a file, or stdin)")
  .action((file?: string) => {
    process.stdout.write(`${explain(readText(file))}\n`);
  });

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => {
    endConnections();
    // Heard once: now it does what it does to any program.
    process.kill(process.pid, signal);
  });
}

program.parseAsync().catch((error: unknown) => {
  if (!(error instanceof UsageError)) throw error;
  if (error instanceof ConfigurationError && program.opts<Options>().json) {
    process.stdout.write(`${JSON.stringify({ ready: false, configuration: error.mistakes }, null, 2)}\n`);
  } else {
    process.stderr.write(`preflight: ${error.message}\n`);
  }
  process.exitCode = 2;
});

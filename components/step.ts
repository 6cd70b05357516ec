import * as fs from "node:fs";
import * as path from "node:path";

/** The scripts that run on a Spark. */
const folder = path.join(__dirname, "../scripts/remote");

/** Text of one of them. */
export function scriptText(name: string): string {
  return fs.readFileSync(path.join(folder, name), "utf8");
}

/** A script under scripts/remote/, with its arguments. */
export interface StepCall {
  /** File name, e.g. `fabric-key.sh`. */
  script: string;
  args: readonly string[];
}

/** Where and how a call runs. */
export interface StepPlace {
  /** The deployment's folder on the node, relative to the user's home. */
  directory: string;
  node: string;
  /** What the step is called in messages. Each has a result of its own. */
  step: string;
  timeoutSeconds: number;
  /** See `step.py`. */
  mode: "create" | "again" | "delete" | "leave";
}

/** Program and arguments of a step. The program itself is `stepProgram`, and goes in by stdin. */
export function stepArguments({ script, args }: StepCall, at: StepPlace): string[] {
  return ["python3", "-B", "-", at.directory, at.node, at.step, String(at.timeoutSeconds), at.mode, script, ...args];
}

/**
 * The text of `step.py`, with the scripts in it and all that these use.
 *
 * @param environment variables for the scripts, by name
 */
export function stepProgram(scripts: readonly string[], environment: Readonly<Record<string, string>> = {}): string {
  const files: Record<string, string> = {};
  const add = (name: string): void => {
    if (name in files || !fs.existsSync(path.join(folder, name))) return;
    const text = scriptText(name);
    files[name] = text;
    const imported = [...text.matchAll(/^(?:from|import) (\w+)/gm)].map(([, module = ""]) => `${module}.py`);
    const named = [...text.matchAll(/(?<=[\s"/])[\w-]+\.(?:py|sh|json)\b/g)].map(([file]) => file);
    [...imported, ...named].forEach(add);
  };
  scripts.forEach(add);
  return programWith(Object.fromEntries(Object.entries(files).sort()), environment);
}

/** The text of `step.py` with these texts in it, by name, and these variables. */
export function programWith(
  files: Readonly<Record<string, string>>,
  environment: Readonly<Record<string, string>> = {},
): string {
  // From the end of the text to its beginning: what is filled in may hold such a line itself.
  const filled = { ENVIRONMENT: environment, FILES: files };
  return Object.entries(filled).reduce(
    (text, [name, value]) =>
      Object.keys(value).length === 0
        ? text
        : text.replace(`${name} = {}`, () => `${name} = json.loads(${JSON.stringify(JSON.stringify(value))})`),
    scriptText("step.py"),
  );
}

import * as path from "node:path";
import type { Sandbox } from "./sandbox";

/** The server's API key, which belongs into no command line. */
export const key = "a-canary-key";

/**
 * The serving image, in which programs run on this machine. Its load tools save `results`, one a run, the last one again and
 * again, after `tool`, which is Python; what is no text as JSON. A `change` answers before all else.
 */
export function servingImage(box: Sandbox, results: unknown[], { tool = "", change = "" } = {}): void {
  const texts = results.map((result) => (typeof result === "string" ? result : JSON.stringify(result)));
  box.write("results.json", texts);
  box.write("docker-world/containers.json", { server: { status: "running" } });
  box.write("site/fake-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fake\nVersion: 0\n");
  box.write(
    "site/fake-0.dist-info/entry_points.txt",
    "[console_scripts]\nvllm = fake_tool:main\nllama-benchy = fake_tool:main\n",
  );
  box.write(
    "site/fake_tool.py",
    `import json, os, sys
def main():
    with open("${box.home}/runs.log", "a+") as log:
        log.write(json.dumps([os.getcwd(), *sys.argv]) + "\\n")
        log.seek(0)
        times = len(log.readlines())
    print("a line of the tool", flush=True)
    os.system("echo a line of its child")
    assert os.environ["OPENAI_API_KEY"] == "${key}"
    ${tool}
    results = json.load(open("${box.home}/results.json"))
    with open("result.json", "w") as file:
        file.write(results[min(times, len(results)) - 1])
`,
  );
  box.write(
    "docker-world/exec",
    `#!/bin/sh
case "$*" in
  ${change}
  *printenv*) echo ${key} ;;
  *importlib.metadata.version*) echo 0.32.0 ;;
  *--interactive*) shift 4; PYTHONPATH='${box.home}/site' exec "$@" ;;
  *) exit 8 ;;
esac
`,
    0o755,
  );
}

/** The driver's command line. */
export const driver = (port: string, plan: object) => [
  ...["python3", "-B", path.resolve("scripts/remote/benchmark.py")],
  ...["server", port, "tiny", "/models/tiny", "runs.jsonl", JSON.stringify(plan)],
];

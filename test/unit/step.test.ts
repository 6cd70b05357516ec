import * as fs from "node:fs";
import { expect, test } from "vitest";
import { stepArguments, stepProgram } from "../../components/step";

/** The scripts that a step's program has in it. */
function filesIn(program: string): Record<string, string> {
  const sent = /^FILES = json\.loads\((.*)\)$/m.exec(program)?.[1] ?? "";
  return JSON.parse(JSON.parse(sent) as string) as Record<string, string>;
}

test.each([
  [
    "pull_image.py",
    [
      ...["background_pull.py", "children.py", "containers.py", "docker_pull.py", "engine_versions.py", "files.py"],
      ...["model_files.py", "pull_image.py", "signatures.json", "signatures.py"],
    ],
  ],
  [
    "authorize-fabric-key.sh",
    [
      ...["authorize-fabric-key.sh", "children.py", "fabric_ssh.py", "files.py", "model_files.py", "model_hop.py"],
      ...["receive-image.sh", "receive-model.sh", "receive_model.py"],
    ],
  ],
  [
    "copy_model.py",
    [
      ...["children.py", "copy_model.py", "fabric_ssh.py", "files.py", "model_files.py", "model_hop.py"],
      ...["receive-model.sh", "receive_model.py"],
    ],
  ],
  [
    "measure_fabric.py",
    ["all_reduce.py", "containers.py", "files.py", "measure_fabric.py", "signatures.json", "signatures.py"],
  ],
  [
    "wait_for_ray.py",
    ["containers.py", "files.py", "ray_nodes.py", "signatures.json", "signatures.py", "wait_for_ray.py"],
  ],
  [
    "wait_for_server.py",
    ["containers.py", "files.py", "server_api.py", "signatures.json", "signatures.py", "wait_for_server.py"],
  ],
])("%s goes with all that it uses, byte for byte", (script, expected) => {
  const files = filesIn(stepProgram([script]));
  expect(Object.keys(files)).toEqual(expected);
  for (const name of expected) expect(files[name]).toBe(fs.readFileSync(`scripts/remote/${name}`, "utf8"));
});

test("variables for a script go in with the program", () => {
  const told = /^ENVIRONMENT = json\.loads\((.*)\)$/m.exec(
    stepProgram(["fabric-key.sh"], { A: 'it\'s "$HOME"\n' }),
  )?.[1];
  expect(JSON.parse(JSON.parse(told ?? "") as string)).toEqual({ A: 'it\'s "$HOME"\n' });
  expect(stepProgram(["fabric-key.sh"])).toContain("\nENVIRONMENT = {}\n");
});

test("a call is told in the order of step.py's arguments", () => {
  const at = { directory: "d", node: "n", step: "s", timeoutSeconds: 1.5, mode: "again" } as const;
  expect(stepArguments({ script: "x.sh", args: ["a b", ""] }, at)).toEqual([
    ...["python3", "-B", "-", "d", "n", "s", "1.5", "again", "x.sh", "a b", ""],
  ]);
});

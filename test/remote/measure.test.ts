import * as fs from "node:fs";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Sandbox } from "./sandbox";

// What is asked of Ray itself is tried in the lab: here `docker exec` answers in its place.

let box: Sandbox;
beforeEach(() => {
  box = new Sandbox();
});
afterEach(() => {
  box.remove();
});

const result = { busBytesPerSecond: 1000, logs: { "192.168.200.12": "", "192.168.200.13": "" } };

/** What `docker exec` prints, and how it ends. */
function ray(stdout: string, code = 0, stderr = ""): void {
  box.write(
    "docker-world/exec",
    `#!/bin/sh\nreadlink /proc/$$/fd/0 >"$HOME/stdin"\necho '${stdout}'\necho '${stderr}' >&2\nexit ${code}\n`,
    0o755,
  );
}

function containers(server: "running" | "exited" | undefined, restarts = 0): void {
  box.write("docker-world/containers.json", {
    ray: { status: "running", restarts },
    ...(server && { server: { status: server } }),
  });
}

const measure = () =>
  box.run("measure_fabric.py", [
    ...["ray", "server", "kept.json", "60", "192.168.200.12:6379", "gloo", "1024", "192.168.200.12", "192.168.200.13"],
  ]);

const execs = () => box.read("docker-world/calls.log").match(/"exec"/g)?.length ?? 0;

test("the ranks are bounded in time inside the container, and read a pipe that ends with the step", async () => {
  containers(undefined);
  ray(`noise\n${JSON.stringify(result)}`);
  expect(JSON.parse((await measure()).stdout)).toEqual({ changed: true, ...result });
  expect(box.read("stdin")).toMatch(/^pipe:/);
  const call =
    box
      .read("docker-world/calls.log")
      .split("\n")
      .find((line) => line.includes('"exec"')) ?? "";
  expect(JSON.parse(call)).toEqual([
    ...["exec", "--interactive", "ray", "timeout", "--kill-after=5", "60", "python3", "-c"],
    fs.readFileSync("scripts/remote/all_reduce.py", "utf8"),
    ...["192.168.200.12:6379", "gloo", "1024", "192.168.200.12", "192.168.200.13"],
  ]);
});

test("while the server runs beside the same Ray, the result is told again, else it is measured anew", async () => {
  containers(undefined);
  ray(JSON.stringify(result));
  await measure();
  containers("running");
  expect(JSON.parse((await measure()).stdout)).toEqual({ changed: false, ...result });
  expect(execs()).toBe(1);
  containers("exited");
  expect(JSON.parse((await measure()).stdout)).toMatchObject({ changed: true });
  containers("running", 1);
  expect(JSON.parse((await measure()).stdout)).toMatchObject({ changed: true });
  box.write("kept.json", "{ half");
  expect(JSON.parse((await measure()).stdout)).toMatchObject({ changed: true });
  expect(execs()).toBe(4);
});

test("a failure shows the last lines and why, and nothing is kept of it", async () => {
  containers("running");
  ray("", 1, "RuntimeError: Gloo connectFullMesh failed");
  expect(await measure()).toMatchObject({
    code: 1,
    stderr:
      "all-reduce over 2 nodes\nRuntimeError: Gloo connectFullMesh failed\n\n" +
      "the nodes could not add up a tensor over the fabric: exit code 1\n",
  });
  ray("", 124);
  expect((await measure()).stderr).toContain("over the fabric: no end within 60 s\n");
  expect(() => box.read("kept.json")).toThrow("ENOENT");
});

test("without Ray's container the step says so", async () => {
  expect(await measure()).toMatchObject({ code: 1, stderr: "container ray: Error: No such object: ray\n" });
});

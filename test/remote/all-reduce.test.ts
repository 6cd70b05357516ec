import * as path from "node:path";
import { expect, test } from "vitest";
import { Sandbox } from "./sandbox";

// Ray and PyTorch in a line each: one rank, in the same process, whose NCCL logs what it is asked to log.
const ray = `
class Actor:
    def __init__(self, kind):
        self.kind = kind
    def options(self, **_):
        return self
    def remote(self, *arguments):
        made = self.kind(*arguments)
        return Actor(made) if isinstance(self.kind, type) else made
    def __getattr__(self, name):
        return Actor(getattr(self.kind, name))
import os
looks = []
def init(**_): pass
def get(result):
    # A node that is gone, and that Ray takes for alive, can't be given work.
    if len(looks) <= int(os.environ.get("STALE_LOOKS", 0)):
        from ray.exceptions import ActorUnschedulableError
        raise ActorUnschedulableError("the node doesn't exist any more")
    return result
def remote(**_): return Actor
def nodes():
    looks.append(1)
    return [{"NodeManagerAddress": "127.0.0.1", "NodeID": "a", "Alive": True}]
`;
const exceptions = "class ActorUnschedulableError(Exception): pass\nclass RayActorError(Exception): pass\n";
const torch = `
float32 = "float32"
class One:
    def __getitem__(self, _): return self
    def item(self): return 1
def ones(*_, **__): return One()
`;
const distributed = `
import os
def init_process_group(*_, **__):
    with open(os.environ["NCCL_DEBUG_FILE"], "w") as file:
        file.write("NET/ " + os.environ["NCCL_DEBUG"] + " " + os.environ["NCCL_DEBUG_SUBSYS"])
def all_reduce(_): pass
def barrier(): pass
def destroy_process_group(): pass
`;

test.each<NodeJS.ProcessEnv>([
  {},
  { STALE_LOOKS: "2" },
  { NCCL_DEBUG: "WARN", NCCL_DEBUG_SUBSYS: "ENV", NCCL_DEBUG_FILE: "/dev/null" },
])("NCCL logs the way that it chose, and a node that is gone is waited out: %j", async (environment) => {
  const box = new Sandbox();
  try {
    box.write("ray/__init__.py", ray);
    box.write("ray/exceptions.py", exceptions);
    box.write("ray/util/__init__.py", "");
    box.write("ray/util/scheduling_strategies.py", "def NodeAffinitySchedulingStrategy(*_, **__): pass\n");
    box.write("torch/__init__.py", torch);
    box.write("torch/distributed.py", distributed);
    const more = { ...environment, PYTHONPATH: box.home };
    const argv = ["python3", "-B", path.resolve("scripts/remote/all_reduce.py"), "a:1", "gloo", "64", "127.0.0.1"];
    // Nobody waits for it.
    expect(await box.exec(argv, { ...more, STALE_LOOKS: "1000" })).toEqual({ code: 1, stdout: "", stderr: "" });
    const { stdout, stderr } = await box.exec(argv, more, "pipe");
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toMatchObject({ logs: { "127.0.0.1": "NET/ INFO INIT,NET" } });
  } finally {
    box.remove();
  }
});

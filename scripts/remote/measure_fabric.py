"""Measures the fabric as the engine will use it: measure_fabric.py CONTAINER SERVER FILE SECONDS ADDRESS BACKEND BYTES NODE...

Runs all_reduce.py in Ray's CONTAINER on the head. The result is kept in FILE, and is told again while the container SERVER
runs beside the same one of Ray: a measurement would disturb the engine, and be disturbed by it.
"""

import json
import os
import sys

from containers import docker, fail
from files import text_of, write_whole

container, server, kept, seconds, *arguments = sys.argv[1:]

inspected = docker("inspect", "--format", "{{.Id}} {{.State.StartedAt}}", container)
if inspected.returncode != 0:
    fail(f"container {container}: {inspected.stderr.strip()}")
made_for = [inspected.stdout.strip(), *arguments]


def earlier():
    """The result of an earlier measurement that still holds; None without one."""
    if docker("inspect", "--format", "{{.State.Running}}", server).stdout.strip() != "true":
        return None
    try:
        with open(kept, encoding="utf-8") as file:
            record = json.load(file)
        return record["result"] if record["madeFor"] == made_for else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


known = earlier()
if known is not None:
    print(json.dumps({"changed": False, **known}))
    sys.exit(0)
print(f"all-reduce over {len(arguments) - 3} nodes", file=sys.stderr, flush=True)
# `timeout` inside: the end of `docker exec` does not end what it started. It reads a pipe that nobody writes to, and ends when
# that does, which is when this step has ended, however it did.
bounded = ["timeout", "--kill-after=5", seconds, "python3", "-c", text_of("all_reduce.py"), *arguments]
open_end, _ = os.pipe()
done = docker("exec", "--interactive", container, *bounded, stdin=open_end)
if done.returncode != 0:
    why = f"no end within {seconds} s" if done.returncode == 124 else f"exit code {done.returncode}"
    lines = "\n".join(done.stderr.strip().splitlines()[-20:])
    fail(f"{lines}\n\nthe nodes could not add up a tensor over the fabric: {why}")
result = json.loads(done.stdout.strip().splitlines()[-1])
write_whole(kept, json.dumps({"madeFor": made_for, "result": result}))
print(json.dumps({"changed": True, **result}))

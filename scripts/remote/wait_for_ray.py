"""Waits until exactly the given nodes are alive in the Ray cluster:
wait_for_ray.py CONTAINER GCS_ADDRESS SECONDS ADDRESS..."""

import json
import os
import subprocess
import sys
import time

from containers import Watch, fail, last_lines

container, gcs_address, seconds, *expected = sys.argv[1:]
probe = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ray_nodes.py")


# How long one probe waits for the nodes, and how much longer it may take.
PATIENCE_SECONDS = 10
GRACE_SECONDS = 20


def alive_nodes(left):
    """Addresses alive in the cluster, at once when they are the right ones; None when Ray does not answer yet."""
    patience = max(0, min(PATIENCE_SECONDS, left - GRACE_SECONDS))
    try:
        with open(probe, "rb") as source:
            done = subprocess.run(
                ["docker", "exec", "-i", container, "python3", "-", gcs_address, str(patience), *expected],
                stdin=source,
                capture_output=True,
                timeout=min(patience + GRACE_SECONDS, left),
            )
        return json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None


def main():
    started = time.monotonic()
    shown = None
    alive = None
    watch = Watch(container, container)
    while (left := started + float(seconds) - time.monotonic()) > 0:
        if watch.died():
            watch.fail_dead("Ray's head")
        alive = alive_nodes(left)
        if alive is not None and sorted(alive) == sorted(expected):
            print(json.dumps({"changed": False, "nodes": alive}))
            return
        if alive != shown:
            shown = alive
            print(f"Ray nodes alive: {', '.join(alive or []) or 'none yet'}", file=sys.stderr, flush=True)
        time.sleep(1)
    missing = sorted(set(expected) - set(alive or []))
    strangers = sorted(set(alive or []) - set(expected))
    fail(
        f"{watch.causes()}{last_lines(container, 15)}\n\n"
        f"after {seconds} s the Ray cluster is not the one that was asked for\n"
        f"  missing: {', '.join(missing) or 'none'}\n  unexpected: {', '.join(strangers) or 'none'}\n"
        f"Look at `docker logs {container}` on each missing node; the lines above are the head's."
    )


main()

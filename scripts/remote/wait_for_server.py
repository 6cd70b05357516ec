"""Follows a model load until the server answers a completion: wait_for_server.py CONTAINER PORT MODEL SECONDS

Shows how far the load is. Ends early with the log when the engine dies, and when the server keeps refusing; names the
cause and cure of what it knows in the log. /health and /v1/models may answer while the engine is dead, so only a
completion proves the server.
"""

import atexit
import json
import re
import signal
import subprocess
import sys
import threading
import time

from containers import Watch, docker, fail, inspected, last_lines, state
from server_api import Api

container, port, model, seconds = sys.argv[1:]
# Both are named after the deployment: see containerName in components/container.ts.
ray = re.sub("server$", "ray", container)

# What the log says, and how it is shown. Progress bars overwrite each other on one line: the last match counts.
# Each of vLLM's loaders has a label of its own. All files read is not yet loaded, which has a line of its own.
WAITING = r"Waiting for creating a placement group of specs for (\d+) seconds"
STAGES = [
    (WAITING, "waiting for a place for every rank, {0} s"),
    (
        r"(?:Loading safetensors[^:\n]*|Multi-thread loading shards):\s*(\d+)% Completed \| (\d+)/(\d+)",
        "loading weights: {0} %, {1} of {2} files",
    ),
    (r"Model loading took ([\d.]+) GiB\D*([\d.]+) seconds", "weights loaded: {0} GiB in {1} s"),
    (r"Capturing CUDA graphs[^:]*:\s*(\d+)%", "capturing CUDA graphs: {0} %"),
    (r"GPU KV cache size: ([\d,]+) tokens", "KV cache: {0} tokens"),
    (r"init engine [^\n]*? took ([\d.]+) s", "engine ready after {0} s"),
    (r"Application startup complete", "API up, waiting for a completion"),
]

# A node that was there a moment ago, or Ray would not have passed its gate. The engine itself waits half an hour.
PATIENCE_SECONDS = 100
# Docker starts Ray again within seconds. Where it was killed at a bad moment itself, it does not, and the engine waits for ever.
RAY_SECONDS = 20


def stage(text):
    """What a piece of the log tells of the load; None when nothing."""
    for pattern, form in STAGES:
        matches = list(re.finditer(pattern, text))
        if matches:
            return form.format(*matches[-1].groups())
    return None


def say(text):
    print(text, file=sys.stderr, flush=True)


class Progress(threading.Thread):
    """Reads the log of this life as it grows, and keeps the last stage."""

    def __init__(self, since):
        super().__init__(daemon=True)
        self.text, self.waited = "starting the engine", 0
        self.logs = subprocess.Popen(
            ["docker", "logs", "--follow", "--since", since, container],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        atexit.register(self.logs.terminate)

    def run(self):
        # In text mode a carriage return ends a line too, so a progress bar is seen while it moves.
        for line in self.logs.stdout:
            self.text = stage(line) or self.text
            if waiting := re.search(WAITING, line):
                self.waited = int(waiting[1])


class Refusals:
    """Tells when a 4xx answer is to stay: five times the same in a row, over five seconds. Waiting won't mend it."""

    def __init__(self):
        self.answer, self.times, self.since = None, 0, 0.0

    def permanent(self, path, status, now):
        if (path, status) != self.answer:
            self.answer, self.times, self.since = (path, status), 0, now
        self.times += 1
        return 400 <= (status or 0) < 500 and self.times >= 5 and now - self.since >= 5


def answers(api, seconds_left):
    """Whether the server names the model and completes; ends the step when it serves something else."""
    models = api.models()
    if models is None:
        return False
    if model not in models:
        fail(f"the server names {', '.join(models) or 'no model'}, not {model}")
    status, answer = api.chat(model, "Say hello.", max_tokens=8, timeout=min(120, seconds_left))
    try:
        return status == 200 and answer["usage"]["completion_tokens"] > 0
    except (KeyError, TypeError):
        return False


def start():
    """Starts the container if it does not run: a gate that failed before has stopped it, or a person has."""
    status = state(container).status
    if status in ("running", "restarting"):
        return
    say(f"container {container} is {status}: starting it")
    done = docker("start", container)
    if done.returncode != 0:
        fail(f"container {container} can't be started: {done.stderr.strip()}")


class RayWatch:
    """Tells when Ray's container on this node does not run and is not started again either."""

    def __init__(self):
        self.ran_at = time.monotonic()

    def gone(self, now):
        """Its status, once it has not run for RAY_SECONDS; None before."""
        status = inspected("container", ray, "{{.State.Status}}") or "gone"
        if status in ("running", "restarting"):
            self.ran_at = now
        return status if now - self.ran_at >= RAY_SECONDS else None


def main():
    # An exit like any other, so that no child is left.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    started = time.monotonic()
    start()
    watch = Watch(container, ray)
    progress = Progress(watch.since)
    progress.start()
    shown, shown_at = None, 0.0
    api = Api(container, port)
    refusals = Refusals()
    ray_watch = RayWatch()
    while (elapsed := time.monotonic() - started) < float(seconds):
        if watch.died():
            watch.fail_dead("the engine", stop=True)
        if progress.waited >= PATIENCE_SECONDS:
            fail(
                f"{watch.causes()}{last_lines(container)}\n\nthe engine has waited {progress.waited} s for a node that left Ray's "
                "cluster. It goes on by itself when that is back, and the next `pulumi up` waits for its answer."
            )
        if answers(api, float(seconds) - elapsed):
            say(f"{time.monotonic() - started:.0f} s: {model} answers")
            print(json.dumps({"changed": False, "model": model}))
            return
        now = time.monotonic()
        if status := ray_watch.gone(now):
            fail(
                f"{watch.causes()}{last_lines(ray, 15)}\n\nRay's container on this node, {ray}, is {status} and was not started again for "
                f"{RAY_SECONDS} s: the engine waits for it. Bring it back: pulumi up --refresh"
            )
        path, status, _ = api.last
        if refusals.permanent(path, status, now):
            fail(f"{last_lines(container)}\n\nthe server keeps refusing, {refusals.times} times in a row: {api.told()}")
        if progress.text != shown or now - shown_at > 10:
            shown, shown_at = progress.text, now
            say(f"{now - started:.0f} s: {shown}")
        time.sleep(1)
    fail(
        f"{watch.causes()}{last_lines(container)}\n\n"
        f"{model} did not answer within {seconds} s; it got as far as: {progress.text}\n"
        f"The last answer: {api.told()}"
    )


if __name__ == "__main__":
    main()

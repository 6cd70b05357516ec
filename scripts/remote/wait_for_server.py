"""Follows a model load until the server answers a completion: wait_for_server.py CONTAINER PORT MODEL SECONDS

Shows how far the load is. Ends early with the log when the engine dies. /health and /v1/models may answer while the
engine is dead, so only a completion proves the server.
"""

import json
import re
import subprocess
import sys
import threading
import time

from containers import fail, fail_dead, last_lines, state
from server_api import Api

container, port, model, seconds = sys.argv[1:]

# What the log says, and how it is shown. Progress bars overwrite each other on one line: the last match counts.
STAGES = [
    (r"Loading safetensors checkpoint shards:\s*(\d+)% Completed \| (\d+)/(\d+)", "loading weights: {0} %, {1} of {2} files"),
    (r"Model loading took ([\d.]+) GiB\D*([\d.]+) seconds", "weights loaded: {0} GiB in {1} s"),
    (r"Capturing CUDA graphs[^:]*:\s*(\d+)%", "capturing CUDA graphs: {0} %"),
    (r"GPU KV cache size: ([\d,]+) tokens", "KV cache: {0} tokens"),
    (r"init engine [^\n]*? took ([\d.]+) s", "engine ready after {0} s"),
    (r"Application startup complete", "API up, waiting for a completion"),
]


def stage(text):
    """What a piece of the log tells of the load; None when nothing."""
    for pattern, form in STAGES:
        matches = list(re.finditer(pattern, text))
        if matches:
            return form.format(*matches[-1].groups())
    return None


class Progress(threading.Thread):
    """Reads the log as it grows, and keeps the last stage."""

    def __init__(self):
        super().__init__(daemon=True)
        self.text = "starting the engine"
        self.logs = subprocess.Popen(
            ["docker", "logs", "--follow", container],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )

    def run(self):
        # In text mode a carriage return ends a line too, so a progress bar is seen while it moves.
        for line in self.logs.stdout:
            self.text = stage(line) or self.text


def answers(api, seconds_left):
    """Whether the server names the model and completes; ends the step when it serves something else."""
    models = api.models()
    if models is None:
        return False
    if model not in models:
        fail(f"the server names {', '.join(models)}, not {model}")
    status, answer = api.chat(model, "Say hello.", max_tokens=8, timeout=min(120, seconds_left))
    return status == 200 and answer["usage"]["completion_tokens"] > 0


def main():
    started = time.monotonic()
    progress = Progress()
    progress.start()
    shown, shown_at = None, 0.0
    api = Api(container, port)
    while (elapsed := time.monotonic() - started) < float(seconds):
        if not state(container).alive:
            fail_dead(container, "the engine")
        if answers(api, float(seconds) - elapsed):
            print(f"{time.monotonic() - started:.0f} s: {model} answers", file=sys.stderr, flush=True)
            print(json.dumps({"changed": False, "model": model}))
            return
        now = time.monotonic()
        if progress.text != shown or now - shown_at > 10:
            shown, shown_at = progress.text, now
            print(f"{now - started:.0f} s: {shown}", file=sys.stderr, flush=True)
        time.sleep(1)
    fail(f"{last_lines(container)}\n\n{model} did not answer within {seconds} s; it got as far as: {progress.text}")


main()

"""Runs scripts for the operator over one connection. Each line on stdin is JSON, {name: {"source": …, "args": […]}}: scripts
to run at once. Each is answered by a line, {name: {"code": …, "stdout": …, "stderr": …}}. Nothing is written on this machine.
"""

import json
import multiprocessing
import os
import signal
import sys
import time

# Longer than any of the scripts takes when all that it asks hangs.
LIMIT_SECONDS = 20

# Forked: starting Python anew costs more than what most scripts do.
forking = multiprocessing.get_context("fork")


def be(script, streams):
    """Becomes a script, in a process of its own."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.argv = ["-c", *script["args"]]
    exec(compile(script["source"], "<script>", "exec"), {"__name__": "__main__"})


class Running:
    """A script, and what it prints: into memory, which no process that it leaves behind can hold up."""

    def __init__(self, script):
        self.outputs = [os.memfd_create("stdout"), os.memfd_create("stderr")]
        streams = [os.open(os.devnull, os.O_RDONLY), *self.outputs]
        self.process = forking.Process(target=be, args=(script, streams))
        self.process.start()
        os.close(streams[0])

    def result(self, seconds):
        """How it ended within this time; what it started is stopped when the time is up."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        stdout, stderr = map(self.printed, self.outputs)
        if code is None:
            return {"code": -9, "stdout": stdout, "stderr": f"{stderr}\nstopped after {LIMIT_SECONDS} s"}
        return {"code": code, "stdout": stdout, "stderr": stderr}

    @staticmethod
    def printed(output):
        with os.fdopen(output, encoding="utf-8", errors="replace") as file:
            file.seek(0)
            return file.read()


# Bytes: JSON is UTF-8, whatever the locale of the session.
for line in sys.stdin.buffer:
    begun = time.monotonic()
    running = {name: Running(script) for name, script in json.loads(line).items()}
    results = {
        name: script.result(max(0, begun + LIMIT_SECONDS - time.monotonic())) for name, script in running.items()
    }
    print(json.dumps(results), flush=True)
# Without waiting for a script that hangs in the kernel and can't be killed.
os._exit(0)

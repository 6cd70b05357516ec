"""Runs scripts for the operator over one connection. Each line on stdin is JSON, {name: {"source": …, "args": […]}}: scripts
to run at once. Each is answered by a line, {name: {"code": …, "stdout": …, "stderr": …}}. Nothing is written on this machine.
"""

import json
import os
import select
import signal
import sys
import time

# Longer than any of the scripts takes when all that it asks hangs.
LIMIT_SECONDS = 20


def be(script, streams):
    """Becomes a script, and ends as a program does."""
    code = 1
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.argv = ["-c", *script["args"]]
        exec(compile(script["source"], "<script>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


class Running:
    """A script, and what it prints: into memory, which no process that it leaves behind can hold up."""

    def __init__(self, script):
        self.outputs = [os.memfd_create("stdout"), os.memfd_create("stderr")]
        streams = [os.open(os.devnull, os.O_RDONLY), *self.outputs]
        # Starting Python anew, or even its module for processes, costs more than what most scripts do.
        self.pid = os.fork()
        if self.pid == 0:
            be(script, streams)
        os.close(streams[0])

    def result(self, seconds):
        """How it ended within this time; what it started is stopped when the time is up."""
        end = os.pidfd_open(self.pid)
        has_ended, _, _ = select.select([end], [], [], seconds)
        os.close(end)
        if not has_ended:
            os.killpg(self.pid, signal.SIGKILL)
        stdout, stderr = map(self.printed, self.outputs)
        if not has_ended:
            return {"code": -9, "stdout": stdout, "stderr": f"{stderr}\nstopped after {LIMIT_SECONDS} s"}
        _, status = os.waitpid(self.pid, 0)
        return {"code": os.waitstatus_to_exitcode(status), "stdout": stdout, "stderr": stderr}

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

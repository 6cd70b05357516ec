"""Runs scripts for the operator over one connection. Each line on stdin is JSON, {name: {"source": …, "args": […]}}: scripts
to run at once. Each is answered by a line, {name: {"code": …, "stdout": …, "stderr": …}}. Nothing is written on this machine.
"""

import concurrent.futures
import json
import os
import signal
import subprocess
import sys

# Longer than any of the scripts takes when all that it asks hangs.
LIMIT_SECONDS = 20


def run(script):
    """How a script ended, with what it started: all of it is stopped when the time is up."""
    process = subprocess.Popen(
        ["python3", "-c", script["source"], *script["args"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
        return {"code": process.returncode, "stdout": stdout, "stderr": stderr}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    try:
        stdout, stderr = process.communicate(timeout=1)
    except subprocess.TimeoutExpired:
        # It hangs in the kernel, on a disk for example, and can't be killed.
        stdout, stderr = "", ""
    return {"code": -9, "stdout": stdout, "stderr": f"{stderr}\nstopped after {LIMIT_SECONDS} s"}


# Bytes: JSON is UTF-8, whatever the locale of the session.
for line in sys.stdin.buffer:
    scripts = json.loads(line)
    with concurrent.futures.ThreadPoolExecutor(max(1, len(scripts))) as pool:
        results = dict(zip(scripts, pool.map(run, scripts.values())))
    print(json.dumps(results), flush=True)

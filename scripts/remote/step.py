"""Runs one step on a Spark: step.py FOLDER NODE STEP SECONDS MODE SCRIPT ARGS...

The operator sends it by stdin with the scripts that it needs in FILES, so nothing depends on files that somebody may have
changed or removed here. FOLDER is the deployment's own on this machine. SCRIPT is one of FILES, or a file on this machine.
MODE is
  create  runs the script, and remembers its result
  again   tells the result that is remembered for these arguments; where there is none it runs the script
  delete  runs the script, unless the folder has become that of a node of another name
Ends the work when its time is up, and when the operator's connection is gone, so that nothing is left running that
nobody waits for. Writes a line now and then: a connection that carries nothing is dropped by some networks.
A failure names the node and the step.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Texts by name, filled in by components/step.ts.
FILES = {}

HEARTBEAT_SECONDS = 60
GRACE_SECONDS = 10
INTERPRETERS = {".sh": ["bash"], ".py": ["python3", "-B"]}


def say(text):
    print(text, file=sys.stderr, flush=True)


def read(path):
    """A file's text; None where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def write(path, text):
    """Writes a file whole, or not at all."""
    draft = f"{path}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)


def remembered(record, call):
    """What a call of the script printed earlier; None where it is not known."""
    try:
        kept = json.loads(read(record) or "null")
        return kept["stdout"] if kept["call"] == call else None
    except (ValueError, TypeError, KeyError):
        return None


def signal_group(child, number):
    """Sends a signal to the work with all its children; False when none is left."""
    try:
        os.killpg(child.pid, number)
        return True
    except ProcessLookupError:
        return False


def stop(child):
    """Ends the work with all its children, kindly first."""
    signal_group(child, signal.SIGTERM)
    end = time.monotonic() + GRACE_SECONDS
    # The whole group is waited for: its leader may be gone while a child still runs. Signal 0 only asks.
    while time.monotonic() < end and (child.poll() is None or signal_group(child, 0)):
        time.sleep(0.1)
    signal_group(child, signal.SIGKILL)
    child.wait()


def relay(stream):
    """Passes on what the work says as it comes."""
    while chunk := os.read(stream.fileno(), 1 << 16):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()


def watched(argv, what, seconds, stdout):
    """Exit code of the work, which does not outlive its time or the connection."""
    started = last_sign = time.monotonic()
    connection = os.getppid()
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, start_new_session=True
    )
    # What the work leaves in the background has this pipe, and not the connection, which would stay open with it.
    said = threading.Thread(target=relay, args=(child.stderr,), daemon=True)
    said.start()

    def end(number, _frame):
        stop(child)
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, end)
    while True:
        try:
            code = child.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if os.getppid() != connection:
            stop(child)
            sys.exit(1)
        if now - started > seconds:
            stop(child)
            say(f"{what}: stopped, it took longer than {seconds:g} s")
            sys.exit(124)
        if now - last_sign > HEARTBEAT_SECONDS:
            last_sign = now
            say(f"{what}: {now - started:.0f} s")
    said.join(1)
    if code != 0:
        say(f"{what}: failed (exit code {code})")
    return code if code >= 0 else 128 - code


def run(folder, script, arguments, what, seconds):
    """Runs the script from a place of its own; its exit code and what it printed."""
    place = tempfile.mkdtemp(prefix="step-", dir=folder)
    try:
        for name, text in FILES.items():
            write(os.path.join(place, name), text)
        file = os.path.join(place, script) if script in FILES else script
        argv = [*INTERPRETERS[os.path.splitext(script)[1]], file, *arguments]
        with tempfile.TemporaryFile(dir=place) as stdout:
            code = watched(argv, what, seconds, stdout)
            stdout.seek(0)
            return code, stdout.read().decode("utf-8", "replace")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main():
    folder, node, step, seconds, mode, script, *arguments = sys.argv[1:]
    call = [script, *arguments]
    for needed in (folder, os.path.join(folder, "results")):
        os.makedirs(needed, 0o700, exist_ok=True)
    owner = os.path.join(folder, "node")
    record = os.path.join(folder, "results", f"{step}.json")
    if mode == "delete" and read(owner) not in (None, node):
        say(f"{step} on {node}: nothing to do, this machine is {read(owner)} now")
        return 0
    if mode != "delete" and read(owner) != node:
        write(owner, node)
    # A run that lost its connection may still be ending.
    with open(f"{record}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = remembered(record, call) if mode == "again" else None
        if known is not None:
            print(known, end="")
            return 0
        code, printed = run(folder, script, arguments, f"{step} on {node}", float(seconds))
        print(printed, end="", flush=True)
        if code == 0 and mode != "delete":
            write(record, json.dumps({"call": call, "stdout": printed}))
        return code


sys.exit(main())

"""Runs one step on a Spark: step.py FOLDER NODE STEP SECONDS MODE SCRIPT ARGS...

The operator sends it by stdin with the scripts that it needs in FILES, so nothing depends on files that somebody may have
changed or removed here. FOLDER is the deployment's own on this machine. SCRIPT is one of FILES.
MODE is
  create  runs the script, and remembers its result
  again   tells the result that is remembered for these arguments; where there is none it runs the script
  delete  runs the script, unless a node of another name works in the folder too
  leave   the same for the last deletion of a node: it no longer works in the folder
Ends the work when its time is up, and when the operator's connection is gone, so that nothing is left running that
nobody waits for. Writes a line now and then: a connection that carries nothing is dropped by some networks.
A failure names the node and the step.
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Filled in by components/step.ts: texts by name, and variables for the script, which may be secret.
FILES = {}
ENVIRONMENT = {}

# Of this program's parent, which is there for as long as the connection is.
CONNECTION = os.getppid()
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
HEARTBEAT_SECONDS = 60
GRACE_SECONDS = 10
# Signals that end this program, and its work with it.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
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


class Relay(threading.Thread):
    """Passes on what the work says as it comes. What the work leaves in the background has this pipe, and not the connection,
    which would stay open with it."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self.stream, self.passed = stream, 0
        self.start()

    def run(self):
        while chunk := os.read(self.stream.fileno(), 1 << 16):
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()
            self.passed += len(chunk)

    def finish(self):
        """Waits for what is still on its way."""
        before = -1
        while self.is_alive() and self.passed != before and os.getppid() == CONNECTION:
            before = self.passed
            self.join(1)


def prepare_work():
    """The work must not go on unwatched when this program is killed; and signals end it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait(result, what, seconds, sign, too_long, give_up=lambda: None):
    """Asks for a result until it is not None; not longer than its time, nor than the connection is there."""
    started = last_sign = time.monotonic()
    while (found := result()) is None:
        now = time.monotonic()
        if os.getppid() != CONNECTION:
            give_up()
            sys.exit(1)
        if now - started > seconds:
            give_up()
            say(f"{what}: {too_long} {seconds:g} s")
            sys.exit(124)
        if now - last_sign > HEARTBEAT_SECONDS:
            last_sign = now
            say(f"{what}: {sign.format(now - started)}")
    return found


def locked(path, what, seconds):
    """The file of a lock that this program has then: a run that lost its connection may still be ending."""
    lock = open(path, "w", encoding="ascii")

    def taken():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            time.sleep(0.2)
            return None

    too_long = "not begun, an earlier run of it still goes on after"
    return wait(taken, what, seconds, "waits for the end of an earlier run", too_long)


def watched(argv, what, seconds, stdout):
    """Exit code of the work, which does not outlive its time or the connection."""
    # A signal must not end this program between the start of the work and what `end` does about it.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=prepare_work,
        env={**os.environ, **ENVIRONMENT},
    )
    said = Relay(child.stderr)

    def end(number, _frame):
        stop(child)
        sys.exit(128 + number)

    for number in ENDING:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def ended():
        try:
            return child.wait(0.5)
        except subprocess.TimeoutExpired:
            return None

    code = wait(ended, what, seconds, "{:.0f} s", "stopped, it took longer than", lambda: stop(child))
    said.finish()
    if code != 0:
        say(f"{what}: failed (exit code {code})")
    return code if code >= 0 else 128 - code


def place_in(folder):
    """A folder for one run, whose name tells whose it is; those of runs that were killed are removed. Elsewhere where there is
    no room: what deletes may be what makes some."""
    for name in os.listdir(folder):
        match = re.fullmatch(r"step-(\d+)-.*", name)
        if match and not os.path.exists(f"/proc/{match[1]}"):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    try:
        return filled(tempfile.mkdtemp(prefix=f"step-{os.getpid()}-", dir=folder))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
    return filled(tempfile.mkdtemp(prefix="dgx-spark-serving-", dir="/dev/shm"))


def filled(place):
    """The folder with the scripts in it; it goes where they don't fit."""
    try:
        for name, text in FILES.items():
            write(os.path.join(place, name), text)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return place


def run(folder, script, arguments, what, seconds):
    """Runs the script from a place of its own; its exit code and what it printed."""
    place = place_in(folder)
    try:
        argv = [*INTERPRETERS[os.path.splitext(script)[1]], os.path.join(place, script), *arguments]
        with tempfile.TemporaryFile(dir=place) as stdout:
            code = watched(argv, what, seconds, stdout)
            stdout.seek(0)
            return code, stdout.read().decode("utf-8", "replace")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remove(path):
    try:
        os.remove(path)
    except FileNotFoundError:
        pass


def claim(folder, node):
    """A node notes itself in the folder with its machine's id, since a home may be one of several machines."""
    return os.path.join(folder, "nodes", f"{node}@{(read('/etc/machine-id') or '').strip()}")


def others_here(own):
    """Names of other nodes that work in this folder on this machine: a renamed node's new name."""
    folder, me = os.path.split(own)
    machine = me.split("@")[-1]
    claims = [name.split("@") for name in os.listdir(folder) if name != me]
    return [name for name, *at in claims if at == [machine]]


def step(folder, node, name, seconds, mode, script, *arguments):
    call, what = [script, *arguments], f"{name} on {node}"
    for needed in (folder, os.path.join(folder, "results"), os.path.join(folder, "nodes")):
        os.makedirs(needed, 0o700, exist_ok=True)
    own, stays = claim(folder, node), mode in ("create", "again")
    if mode == "leave":
        remove(own)
    others = others_here(own)
    if others and not stays:
        say(f"{what}: nothing to do, this machine is {others[0]} now")
        return 0
    record = os.path.join(folder, "results", f"{name}.json")
    with locked(f"{record}.lock", what, float(seconds)):
        code, printed = 0, remembered(record, call) if mode == "again" else None
        if printed is None:
            # What it says is no longer so once something was tried.
            remove(record)
            code, printed = run(folder, script, arguments, what, float(seconds))
            if code == 0 and stays:
                write(record, json.dumps({"call": call, "stdout": printed}))
        print(printed, end="", flush=True)
        # Only now: one that did not get this far is in no stack, and nobody would take it out.
        if code == 0 and stays and not os.path.exists(own):
            write(own, "")
        return code


def main():
    try:
        return step(*sys.argv[1:])
    except OSError as error:
        say(f"{sys.argv[3]} on {sys.argv[2]}: {error}")
        return 1


sys.exit(main())

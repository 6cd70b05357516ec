"""Runs one step on a Spark: step.py NODE STEP SECONDS -- ARGV...

Ends the work when its time is up, and when the operator's connection is gone, so that nothing is left running that
nobody waits for. Writes a line now and then: a connection that carries nothing is dropped by some networks.
A failure names the node and the step.
"""

import os
import signal
import subprocess
import sys
import time

HEARTBEAT_SECONDS = 60
GRACE_SECONDS = 10


def say(text):
    print(text, file=sys.stderr, flush=True)


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


def main():
    node, step, seconds, argv = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[5:]
    started = last_sign = time.monotonic()
    connection = os.getppid()
    child = subprocess.Popen(argv, start_new_session=True)

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
            say(f"{step} on {node}: stopped, it took longer than {seconds:g} s")
            sys.exit(124)
        if now - last_sign > HEARTBEAT_SECONDS:
            last_sign = now
            say(f"{step} on {node}: {now - started:.0f} s")
    if code != 0:
        say(f"{step} on {node}: failed (exit code {code})")
    sys.exit(code if code >= 0 else 128 - code)


main()

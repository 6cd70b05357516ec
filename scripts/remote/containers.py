"""What the gates read of a container."""

import re
import subprocess
import sys
from dataclasses import dataclass


@dataclass
class State:
    status: str
    exit_code: int
    restarts: int

    @property
    def alive(self):
        return self.status == "running" and self.restarts == 0


def fail(text):
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)


def state(container):
    """The container's state; ends the step when there is no such container."""
    form = "{{.State.Status}} {{.State.ExitCode}} {{.RestartCount}}"
    done = subprocess.run(["docker", "inspect", "--format", form, container], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"container {container}: {done.stderr.strip()}")
    status, exit_code, restarts = done.stdout.split()
    return State(status, int(exit_code), int(restarts))


def last_lines(container, count=40):
    """The end of the container's log."""
    done = subprocess.run(
        ["docker", "logs", "--tail", str(count), container],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    return done.stdout.rstrip()


def errors(log, count=5):
    """The first different errors in a log. A dying engine ends with tracebacks that don't name the cause."""
    lines = (re.search(r"(\b[A-Za-z_.]*(Error|Exception|Exit)\b: .+)", line) for line in log.splitlines())
    return list(dict.fromkeys(match.group(1) for match in lines if match))[:count]


def fail_dead(container, what):
    """Ends the step because the container died, with the end of its log and the first errors in it."""
    now = state(container)
    first = "".join(f"\n  {error}" for error in errors(last_lines(container, 2000)))
    fail(
        f"{last_lines(container, 20)}\n\n{what} died: container {container} is {now.status}, exit code {now.exit_code}, "
        f"restarted {now.restarts} times. Its last lines are above; all of them: docker logs {container}"
        + (f"\nThe first errors in its log:{first}" if first else "")
    )

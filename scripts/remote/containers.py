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
    started_at: str


def fail(text):
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)


def docker(*argv):
    """One call of docker; both its outputs are kept."""
    return subprocess.run(["docker", *argv], capture_output=True, encoding="utf-8", errors="replace")


def state(container):
    """The container's state; ends the step when there is no such container."""
    form = "{{.State.Status}} {{.State.ExitCode}} {{.RestartCount}} {{.State.StartedAt}}"
    done = docker("inspect", "--format", form, container)
    if done.returncode != 0:
        fail(f"container {container}: {done.stderr.strip()}")
    status, exit_code, restarts, started_at = done.stdout.split()
    return State(status, int(exit_code), int(restarts), started_at)


def last_lines(container, count=40, *options):
    """The end of the container's log."""
    done = subprocess.run(
        ["docker", "logs", *options, "--tail", str(count), container],
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


class Watch:
    """Tells whether a container died since the watch began. What it went through before does not count: one that was
    restarted long ago and runs now is alive, and a gate that failed can be run again."""

    def __init__(self, container):
        begun = state(container)
        self.container, self.restarts, self.since = container, begun.restarts, begun.started_at

    def died(self):
        now = state(self.container)
        return now.status in ("exited", "dead") or now.restarts > self.restarts

    def fail_dead(self, what, stop=False):
        """Ends the step because the container died, with the end of its log and the first errors of this life.
        `stop` keeps Docker from restarting it for ever."""
        now = state(self.container)
        first = "".join(f"\n  {error}" for error in errors(last_lines(self.container, 2000, "--since", self.since)))
        text = (
            f"{last_lines(self.container, 20)}\n\n{what} died: container {self.container} is {now.status}, "
            f"exit code {now.exit_code}, restarted {now.restarts} times. Its last lines are above; "
            f"all of them: docker logs {self.container}"
        )
        if first:
            text += f"\nThe first errors in its log:{first}"
        # Only now: what it writes while it is stopped is not why it died.
        if stop:
            done = docker("stop", self.container)
            text += (
                "\nThe container was stopped, or it would restart for ever; the next `pulumi up` starts it again."
                if done.returncode == 0
                else f"\nThe container could not be stopped and may restart for ever: {done.stderr.strip()}"
            )
        fail(text)

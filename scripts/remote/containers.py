"""What is read of Docker, its containers and images."""

import re
import subprocess
import sys
from dataclasses import dataclass

from signatures import explain, render


@dataclass
class State:
    status: str
    exit_code: int
    restarts: int
    started_at: str


def fail(text):
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)


def docker(*argv, **options):
    """One call of docker; both its outputs are kept. Ends the step when there is no docker to call."""
    try:
        return subprocess.run(["docker", *argv], capture_output=True, encoding="utf-8", errors="replace", **options)
    except OSError as error:
        return fail(f"docker can't be run: {error.strerror}")


def inspected(kind, name, form):
    """What Docker says of a container or an image; None: there is none of that name."""
    done = docker(kind, "inspect", "--format", form, name)
    if done.returncode == 0:
        return done.stdout.strip()
    # "No such image", "no such container": anything else is no answer.
    if "no such" in done.stderr.lower():
        return None
    return fail(f"Docker does not say whether {kind} {name} is there: {done.stderr.strip()}")


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


def ray_logs(container, since):
    """The end of what Ray's own processes wrote in a Ray container since then. Its memory monitor and a lost node
    are told of there and nowhere else. Empty when the container is gone or does not answer."""
    folder = "/tmp/ray/session_latest/logs"
    tail = f"tail -q -n 2000 {folder}/gcs_server.out {folder}/raylet.out"
    try:
        done = subprocess.run(["docker", "exec", container, "sh", "-c", tail], capture_output=True, timeout=5)
    except subprocess.TimeoutExpired:
        return ""
    kept, is_new = [], True
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        # [2026-01-01 00:00:00,123 I …: in UTC as Docker's time is. A line without a time belongs to the one before.
        if stamp := re.match(r"\[(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)", line):
            is_new = f"{stamp[1]}T{stamp[2]}" >= since[:19]
        if is_new:
            kept.append(line)
    return "\n".join(kept)


class Watch:
    """Tells whether a container died since the watch began. What it went through before does not count: one that was
    restarted long ago and runs now is alive, and a gate that failed can be run again.

    `ray` is Ray's container on this node, which may tell why; it may be the watched one itself."""

    def __init__(self, container, ray):
        begun = state(container)
        self.container, self.restarts, self.since = container, begun.restarts, begun.started_at
        self.ray = ray

    def died(self):
        now = state(self.container)
        return now.status in ("exited", "dead") or now.restarts > self.restarts

    def causes(self):
        """Cause and cure of each known error since the watched life began, to stand above the log lines; empty when
        there is none."""
        containers = dict.fromkeys((self.container, self.ray))
        logs = [last_lines(container, 2000, "--since", self.since) for container in containers]
        return render(explain("\n".join([*logs, ray_logs(self.ray, self.since)])))

    def fail_dead(self, what, stop=False):
        """Ends the step because the container died, with the end of its log and the first errors of this life.
        `stop` keeps Docker from restarting it for ever."""
        now = state(self.container)
        first = "".join(f"\n  {error}" for error in errors(last_lines(self.container, 2000, "--since", self.since)))
        text = (
            f"{self.causes()}{last_lines(self.container, 20)}\n\n"
            f"{what} died: container {self.container} is {now.status}, exit code {now.exit_code}, "
            f"restarted {now.restarts} times. Its last lines are above; all of them: docker logs {self.container}"
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

"""What makes a measurement worthless: what the load tool measured, the server and the machine around one run of it."""

import re
import subprocess
import time

from containers import fail, state
from server_api import DIRECT

# Share of the time in which all work on the machine waited for memory; half a per cent is seen on an idle one.
MEMORY_WAIT_SHARE = 0.05
# The counters are written after the answer.
COUNTERS_SECONDS = 5
# What comes within this time came at once.
AT_ONCE_SECONDS = 0.001
# Prompts are tokens that are made text and read again, which may join or split some.
PROMPT_SHARE = 0.05
SLOWDOWNS = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")


def check_requests(name, load, requests, prompt_tokens, output_tokens):
    """Ends the run when requests failed, or have other tokens than were asked for."""
    if load.completed != requests:
        errors = " | ".join(error[:400] for error in sorted(set(load.errors))[:3])
        fail(f"{name}: {load.completed} of {requests} requests completed, {requests - load.completed} failed. {errors}")
    short = [count for count in load.tokens if count != output_tokens]
    if short or len(load.tokens) != requests:
        counts = ", ".join(str(count) for count in sorted(set(short)))
        fail(f"{name}: {len(short)} of {requests} answers have {counts} tokens, {output_tokens} were asked for")
    many = max(len(gaps) + 1 for gaps in load.gaps)
    if many > output_tokens:
        fail(f"{name}: an answer came in {many} pieces and has {output_tokens} tokens: the counts of server and client are apart")
    if not all(load.gaps):
        fail(f"{name}: an answer came in one piece: the server does not stream, and there is no time between tokens")
    if all(sum(gaps) < AT_ONCE_SECONDS for gaps in load.gaps):
        fail(f"{name}: all pieces of each answer came at once: the stream is held up on its way, and there is no time between tokens")
    if min(load.firsts) <= 0:
        fail(f"{name}: an answer has no first token")
    mean = load.prompt_tokens / requests
    if abs(mean - prompt_tokens) > PROMPT_SHARE * prompt_tokens:
        fail(f"{name}: prompts have {mean:.0f} tokens by the server's count, {prompt_tokens} were asked for")


def counters(port):
    """Of the server: tokens generated since it began, and requests under way or waiting; None when it does not tell."""
    try:
        with DIRECT.open(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode("utf-8", "replace")
    except OSError:
        return None

    def total(metric):
        values = re.findall(rf"^vllm:{metric}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for value in values) if values else None

    generated, running, waiting = (total(name) for name in ("generation_tokens_total", "num_requests_running", "num_requests_waiting"))
    return None if generated is None or running is None or waiting is None else (generated, running + waiting)


def memory_wait_seconds():
    """For how long all work has waited for memory since the machine began; None when the kernel does not tell."""
    try:
        with open("/proc/pressure/memory", encoding="ascii") as file:
            return int(re.search(r"^full .*total=(\d+)", file.read(), re.MULTILINE)[1]) / 1e6
    except (OSError, TypeError):
        return None


def slowdowns():
    """Why the GPU is slower now than it could be; None when it does not tell."""
    fields = ",".join(f"clocks_event_reasons.{name}" for name in SLOWDOWNS)
    try:
        argv = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    values = [value.strip() for value in done.stdout.replace("\n", ",").split(",") if value.strip()]
    if done.returncode != 0 or not {"Active", "Not Active"} & set(values):
        return None
    return sorted({SLOWDOWNS[index % len(SLOWDOWNS)] for index, value in enumerate(values) if value == "Active"})


class Surroundings:
    """The server and the machine around one run of the load tool."""

    def __init__(self, container, port):
        self.container, self.port = container, port

    def told(self):
        """What can be held against a run, and what can't be here."""
        known = {
            "every request completed, with all its tokens by the server's count": True,
            "the server was not restarted": True,
            "the server generated these tokens and no others": counters(self.port) is not None,
            "no memory pressure on the head": memory_wait_seconds() is not None,
            "no thermal or power slowdown of the head's GPU": slowdowns() is not None,
        }
        return [what for what, is_known in known.items() if is_known], [what for what, is_known in known.items() if not is_known]

    def idle(self, name):
        """The server's counters once nothing is under way; ends the run when somebody else keeps it busy."""
        end = time.monotonic() + COUNTERS_SECONDS
        while (now := counters(self.port)) and now[1] > 0:
            if time.monotonic() > end:
                fail(f"{name}: {now[1]:.0f} requests of somebody else are under way: a measurement beside them says nothing")
            time.sleep(0.2)
        return now and now[0]

    def run(self, name, work, requests, prompt_tokens, output_tokens, own_tokens):
        """The load that `work` returns; ends the run when it is worthless, or what happened meanwhile makes it so. The tool
        has `own_tokens` generated besides."""
        life, generated = state(self.container), self.idle(name)
        waited, began = memory_wait_seconds(), time.monotonic()
        load = work()
        elapsed = time.monotonic() - began
        now = state(self.container)
        if (now.status, now.restarts, now.started_at) != ("running", life.restarts, life.started_at):
            fail(f"{name}: the server was restarted in between: container {self.container} is {now.status}")
        if load is None:
            fail(f"{name}: the load tool failed, its last lines are above")
        check_requests(name, load, requests, prompt_tokens, output_tokens)
        if generated is not None:
            self.check_tokens(name, generated, requests * output_tokens + own_tokens)
        if waited is not None and (share := (memory_wait_seconds() - waited) / elapsed) > MEMORY_WAIT_SHARE:
            fail(f"{name}: the machine waited for memory {share:.0%} of the time: something else takes it")
        if slow := slowdowns():
            fail(f"{name}: the GPU is slowed down: {', '.join(slow)}")
        return load

    def check_tokens(self, name, before, tokens):
        end = time.monotonic() + COUNTERS_SECONDS
        while True:
            now = counters(self.port)
            found = None if now is None else now[0] - before
            # An engine that began anew counts from nothing.
            if found is None or found < 0:
                fail(f"{name}: the server began anew in between")
            if found == tokens:
                return
            if found > tokens or time.monotonic() > end:
                fail(
                    f"{name}: the server generated {found:.0f} tokens meanwhile, {tokens} were asked for here: "
                    f"{'somebody else uses it' if found > tokens else 'it counts otherwise than it tells its clients'}"
                )
            time.sleep(0.2)

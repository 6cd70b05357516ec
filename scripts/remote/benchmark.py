"""Benchmark driver, run on the head: benchmark.py CONTAINER PORT MODEL TOKENIZER HISTORY PLAN_JSON

PLAN is `{"repeats": N, "tool": NAME, "scenarios": [...]}`, as in the settings. Each repeat of each level of concurrency is one
run of the load tool in the serving image: prompts and answers of a fixed length, the end-of-text token ignored. Prints the
figures as JSON, units in the names, and keeps them in the file HISTORY, from which the earlier ones are told too. The tools
are in tools.py. What makes figures worthless fails the run: see bench_checks.py.

No prompt is sent twice, or the server's prefix cache would be measured: each run has a seed of its own, and the driver warms
the server up by other prompts, because a load tool's own warm-up may send those that it measures.
"""

import concurrent.futures
import datetime
import hashlib
import http.client
import itertools
import json
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from bench_checks import Surroundings
from containers import docker, fail
from files import text_of, write_whole
from server_api import DIRECT
from tools import TOOLS, Target, tokens_after_first

# A level of concurrency that brings less than this share of more throughput is the last.
GROWTH = 0.05
# Of a package: `vllm --version` takes 10 s in the lab. What the image lacks is in a folder of its own.
PACKAGES = "/tmp/dgx-spark-serving-packages"
VERSION = f"import importlib.metadata, sys; sys.path.append('{PACKAGES}'); print(importlib.metadata.version(sys.argv[1]))"
# Of the tokens this share came in a piece of its own, or the times between them were not seen.
PIECES = 0.95
# Runs that are kept, and that are told.
KEPT, TOLD = 20, 10


def say(text):
    print(text, file=sys.stderr, flush=True)


def output(container, *argv):
    """What a program in the container prints; ends the run when it fails."""
    done = docker("exec", container, *argv)
    if done.returncode != 0:
        fail(f"{' '.join(argv)} in container {container} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def version_of(container, tool):
    """The version of a load tool in the container, where it is installed if the image lacks it."""
    ask = ("python3", "-c", VERSION, tool.package)
    if tool.pinned and docker("exec", container, *ask).returncode != 0:
        say(f"{tool.title} is not in the image: installing it in container {container}")
        # Nothing besides: what else it needs the engine needs too, in versions of its own.
        options = ("--quiet", "--disable-pip-version-check", "--retries", "1", "--no-deps", "--upgrade", "--target", PACKAGES)
        done = docker("exec", container, "python3", "-m", "pip", "install", *options, *tool.pinned)
        if done.returncode != 0:
            fail(
                f"{done.stderr.strip()}\n{tool.title} is not in the image, and could not be installed in container {container}: "
                "pip's words are above.\n"
                "  mend: let the head reach Python's package index\n"
                f"        or put it into the image: pip install {' '.join(tool.pinned)}\n"
                "        or measure with the engine's own tool: pulumi config set --path benchmark.tool vllm-bench"
            )
    return output(container, *ask).strip()


class Runner:
    """A load tool in the container. It ends, with its load, when its stdin does: with this driver, however that ends."""

    def __init__(self, container, key):
        self.said = tempfile.TemporaryFile()
        # The key goes by the environment of the docker client, never by an argument.
        self.process = subprocess.Popen(
            [
                *("docker", "exec", "--interactive", "--env", "OPENAI_API_KEY", container),
                *("python3", "-c", text_of("load_tool.py"), PACKAGES),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            encoding="utf-8",
            env={**os.environ, "OPENAI_API_KEY": key},
        )

    def run(self, argv, home):
        """The text of one run's result; None when it failed, its last lines are shown then."""
        try:
            self.process.stdin.write(json.dumps({"argv": argv, "home": home}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            answer = None
        if answer is None:
            self.said.seek(0)
            say("\n".join(self.said.read().decode("utf-8", "replace").splitlines()[-40:]))
        return answer


def complete(port, key, body):
    """One completion that is not measured; what went wrong, or None."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", data=json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    request.add_header("Authorization", f"Bearer {key}")
    try:
        try:
            # No time limit of its own: the step that runs this driver has one.
            answer = DIRECT.open(request)
        except urllib.error.HTTPError as error:
            answer = error  # It is the answer too.
        with answer:
            text = answer.read().decode("utf-8", "replace")
        return None if answer.status == 200 else f"status {answer.status}: {text[:400]}"
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {error}"


def warm_up(name, scenario, requests, port, model, key, seed):
    """Sends as many requests at once as will be measured at once, of the same lengths."""
    source = random.Random(seed)
    bodies = [
        {
            "model": model,
            # Token ids that every vocabulary has.
            "prompt": [source.randrange(256) for _ in range(scenario["prefixTokens"] + scenario["inputTokens"])],
            "max_tokens": scenario["outputTokens"],
            "ignore_eos": True,
            "temperature": 0,
        }
        for _ in range(requests)
    ]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        problems = [problem for problem in pool.map(lambda body: complete(port, key, body), bodies) if problem]
    if problems:
        fail(f"{name}: {len(problems)} of {len(bodies)} requests of the warm-up failed. {problems[0]}")


def rounded(value):
    """Six digits: more than any measurement has."""
    return float(f"{value:.6g}")


def rate(values):
    """A figure of each repeat."""
    return {"median": rounded(statistics.median(values)), "low": rounded(min(values)), "high": rounded(max(values))}


def latency(repeats):
    """A time of each request of each repeat, seconds; told in milliseconds."""
    repeats = [[1000 * value for value in repeat] for repeat in repeats]
    # As numpy has them: between the two nearest values.
    percentiles = statistics.quantiles([value for repeat in repeats for value in repeat], n=100, method="inclusive")
    medians = [statistics.median(repeat) for repeat in repeats]
    return {**rate(medians), "p90": rounded(percentiles[89]), "p99": rounded(percentiles[98])}


def figures(scenario, level, loads):
    """The figures of one level, from what the tool measured in each repeat."""
    output_tokens = scenario["outputTokens"]
    pieces = [len(gaps) + 1 for load in loads for gaps in load.gaps]
    seen = sum(pieces) >= PIECES * output_tokens * len(pieces)
    firsts = [load.firsts for load in loads]
    alone = level == 1 and scenario["prefixTokens"] == 0
    at_once = loads[0].pp is not None
    return {
        "durationSeconds": rate([load.duration for load in loads]),
        "requestsPerSecond": rate([load.completed / load.duration for load in loads]),
        "outputTokensPerSecond": rate([sum(load.tokens) / load.duration for load in loads]),
        "totalTokensPerSecond": rate([(load.prompt_tokens + sum(load.tokens)) / load.duration for load in loads]),
        "promptTokensPerSecond": rate([scenario["inputTokens"] / statistics.median(first) for first in firsts]) if alone else None,
        "ppTokensPerSecond": rate([load.pp for load in loads]) if at_once else None,
        "tgTokensPerSecond": rate([load.tg for load in loads]) if at_once else None,
        "ttftMilliseconds": latency(firsts),
        "tpotMilliseconds": latency(
            [[sum(gaps) / tokens_after_first(gaps, output_tokens) for gaps in load.gaps] for load in loads]
        ),
        "itlMilliseconds": latency([[gap for gaps in load.gaps for gap in gaps] for load in loads]) if seen else None,
    }


class Driver:
    def __init__(self, container, port, model, tokenizer, tool, repeats):
        self.container, self.port, self.model, self.repeats = container, port, model, repeats
        self.key = output(container, "printenv", "VLLM_API_KEY").strip()
        self.tool = TOOLS[tool](Target(port, model, tokenizer, self.key))
        self.version = version_of(container, self.tool)
        self.surroundings = Surroundings(container, port)
        self.started = datetime.datetime.now(datetime.timezone.utc)
        self.seeds = itertools.count(int(self.started.timestamp()))
        self.runner = Runner(container, self.key)

    def load(self, scenario, level, requests, seed):
        """What one run of the tool measured; None when it failed."""
        text = self.runner.run(self.tool.arguments(scenario, level, requests, seed), self.tool.home(seed))
        return None if text is None else self.tool.read(text)

    def measure(self, scenario, level):
        """Warms the server up and measures one level of a scenario."""
        name = f"{scenario['name']} at {level}"
        # All of a level's places are taken to the end.
        requests = level * max(2, math.ceil(scenario["requests"] / level))
        prompt_tokens = scenario["prefixTokens"] + scenario["inputTokens"]
        say(f"{name}: {requests} requests, {self.repeats} times")
        warm_up(name, scenario, level, self.port, self.model, self.key, next(self.seeds))
        loads, seeds = [], list(itertools.islice(self.seeds, self.repeats))
        for seed in seeds:
            try:
                loads.append(
                    self.surroundings.run(
                        name,
                        lambda: self.load(scenario, level, requests, seed),
                        requests,
                        prompt_tokens,
                        scenario["outputTokens"],
                        self.tool.own_tokens,
                    )
                )
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                fail(f"{name}: the load tool's result can't be used: {type(error).__name__}: {error}")
        found = figures(scenario, level, loads)
        say(
            f"{name}: {found['outputTokensPerSecond']['median']:.1f} tokens/s, TTFT {found['ttftMilliseconds']['median']:.0f} ms, "
            f"TPOT {found['tpotMilliseconds']['median']:.1f} ms (medians)"
        )
        return {"concurrency": level, "requests": requests, "warmupRequests": level, "seeds": seeds, **found}

    def sweep(self, scenario):
        """Levels one after the other, as long as more at once brings more."""
        levels, ended = [], "all levels measured"
        peak, most = scenario["concurrency"][0], 0
        for level in scenario["concurrency"]:
            found = self.measure(scenario, level)
            levels.append(found)
            if found["ttftMilliseconds"]["p99"] > scenario.get("ttftLimitMilliseconds", float("inf")):
                ended = "TTFT over its bound"
                break
            speed = found["outputTokensPerSecond"]["median"]
            grew = speed >= most * (1 + GROWTH)
            if speed > most:
                peak, most = level, speed
            if not grew:
                ended = "throughput stopped growing"
                break
        lengths = {name: scenario[name] for name in ("name", "inputTokens", "prefixTokens", "outputTokens")}
        return {**lengths, "levels": levels, "peakConcurrency": peak, "ended": ended}

    def method(self):
        checks, unchecked = self.surroundings.told()
        done = docker("inspect", "--format", "{{.Image}} {{json .Config.Cmd}}", self.container)
        return {
            "tool": f"{self.tool.title} {self.version}",
            "endpoint": f"http://127.0.0.1:{self.port}{self.tool.path}, streamed",
            "driver": f"the head, {socket.gethostname()}",
            "dataset": self.tool.dataset,
            "model": self.model,
            "repeats": self.repeats,
            "tokensCountedBy": "usage in the server's answers",
            "image": done.stdout.split(" ", 1)[0],
            "serverDigest": hashlib.sha256(done.stdout.encode()).hexdigest(),
            "checks": checks,
            "unchecked": unchecked,
        }


def earlier_runs(path):
    """Runs in the history, oldest first; a line that is none is left out."""
    runs = []
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    runs.append(json.loads(line))
                except ValueError:
                    pass
    except FileNotFoundError:
        pass
    return runs


def main(container, port, model, tokenizer, history, plan):
    plan = json.loads(plan)
    began = time.monotonic()
    driver = Driver(container, port, model, tokenizer, plan["tool"], plan["repeats"])
    method = driver.method()
    scenarios = [driver.sweep(scenario) for scenario in plan["scenarios"]]
    run = {"startedAt": driver.started.isoformat(timespec="seconds"), "tool": plan["tool"], "scenarios": scenarios}
    earlier = earlier_runs(history)
    write_whole(history, "".join(f"{json.dumps(each)}\n" for each in [*earlier, run][-KEPT:]))
    method["durationSeconds"] = rounded(time.monotonic() - began)
    print(json.dumps({"version": 1, "method": method, **run, "earlier": earlier[-TOLD:]}))


main(*sys.argv[1:])

"""Benchmark driver, run on the head: benchmark.py CONTAINER PORT MODEL TOKENIZER SCENARIOS_JSON

Each scenario is one run of the load tool in the serving image, `vllm bench serve`, against the server's completions
endpoint: random prompts of a fixed length, the end-of-text token ignored. Prints the figures as JSON, units in the
names. A failed or empty request fails the run: its figures would flatter.

No prompt is sent twice, or the server's prefix cache would be measured: each scenario of each run has a seed of its own,
and the driver warms the server up by other prompts, because the load tool's own warm-up sends those that it measures.
"""

import concurrent.futures
import datetime
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import urllib.error
import urllib.request

from containers import docker, fail
from server_api import DIRECT

PERCENTILES = "50,99"


def output(container, *argv):
    """What a program in the container prints; ends the run when it fails."""
    done = docker("exec", container, *argv)
    if done.returncode != 0:
        fail(f"{' '.join(argv)} in container {container} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def in_container(container, argv, key):
    """Runs the load tool, its output to stderr; returns its exit code. A cancelled run leaves no load behind."""
    # Named after this run: a cancel must not end the load of another.
    pid_file = f"/tmp/dgx-spark-benchmark-{os.getpid()}.pid"
    script = f'echo $$ > {pid_file}; exec "$@"'

    def cancel(number, _frame):
        docker("exec", container, "sh", "-c", f"[ ! -s {pid_file} ] || kill $(cat {pid_file})")
        sys.exit(128 + number)

    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, cancel) for number in signals]
    try:
        # The key goes by the environment of the docker client, never by an argument.
        tool = subprocess.Popen(
            ["docker", "exec", "--env", "OPENAI_API_KEY", container, "sh", "-c", script, "sh", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "OPENAI_API_KEY": key},
        )
        lines = tool.stdout.read().splitlines()
        code = tool.wait()
    finally:
        docker("exec", container, "rm", "-f", pid_file)
        for number, handler in zip(signals, before):
            signal.signal(number, handler)
    if code != 0:
        print("\n".join(lines[-40:]), file=sys.stderr, flush=True)
    return code


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


def warm_up(scenario, port, model, key, seed):
    """Sends as many requests at once as will be measured at once, of the same lengths. Returns how many."""
    source = random.Random(seed)
    bodies = [
        {
            "model": model,
            # Token ids that every vocabulary has.
            "prompt": [source.randrange(256) for _ in range(scenario["inputTokens"])],
            "max_tokens": scenario["outputTokens"],
            "ignore_eos": True,
            "temperature": 0,
        }
        for _ in range(scenario["maxConcurrency"])
    ]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        problems = [problem for problem in pool.map(lambda body: complete(port, key, body), bodies) if problem]
    if problems:
        fail(f"{scenario['name']}: {len(problems)} of {len(bodies)} requests of the warm-up failed. {problems[0]}")
    return len(bodies)


def figures(scenario, raw):
    """The scenario's figures from the load tool's result; ends the run when they are not to be trusted."""
    name = scenario["name"]
    completed, failed = raw["completed"], raw.get("failed", scenario["requests"] - raw["completed"])
    if failed or completed != scenario["requests"]:
        errors = sorted({error.strip().splitlines()[-1] for error in raw.get("errors", []) if error.strip()})
        fail(f"{name}: {completed} of {scenario['requests']} requests completed, {failed} failed. {' | '.join(errors[:3])}")
    wanted = scenario["requests"] * scenario["outputTokens"]
    if raw["total_output_tokens"] != wanted:
        fail(f"{name}: {raw['total_output_tokens']} tokens generated, {wanted} were asked for")
    return {
        "name": name,
        "maxConcurrency": scenario["maxConcurrency"],
        "inputTokensPerRequest": scenario["inputTokens"],
        "outputTokensPerRequest": scenario["outputTokens"],
        "completedRequests": completed,
        "failedRequests": failed,
        "durationSeconds": raw["duration"],
        "requestsPerSecond": raw["request_throughput"],
        "outputTokensPerSecond": raw["output_throughput"],
        "totalTokensPerSecond": raw["total_token_throughput"],
        **{
            f"{metric}{label}Milliseconds": raw[f"{key}_{metric}_ms"]
            for metric in ("ttft", "tpot", "itl")
            for label, key in (("Mean", "mean"), ("Median", "median"), ("P99", "p99"))
        },
    }


def measure(scenario, container, port, model, tokenizer, key, seed):
    """Warms the server up and measures one scenario."""
    warmup_requests = warm_up(scenario, port, model, key, seed)
    file = f"dgx-spark-benchmark-{scenario['name']}.json"
    argv = [
        *("vllm", "bench", "serve", "--backend", "vllm", "--base-url", f"http://127.0.0.1:{port}"),
        *("--model", model, "--tokenizer", tokenizer, "--dataset-name", "random", "--ignore-eos"),
        *("--random-input-len", str(scenario["inputTokens"]), "--random-output-len", str(scenario["outputTokens"])),
        *("--num-prompts", str(scenario["requests"]), "--max-concurrency", str(scenario["maxConcurrency"])),
        *("--num-warmups", "0", "--ready-check-timeout-sec", "0", "--seed", str(seed), "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", PERCENTILES),
        *("--save-result", "--save-detailed", "--result-dir", "/tmp", "--result-filename", file),
    ]
    if in_container(container, argv, key) != 0:
        fail(f"{scenario['name']}: the load tool failed, its last lines are above")
    raw = output(container, "cat", f"/tmp/{file}")
    output(container, "rm", f"/tmp/{file}")
    try:
        result = figures(scenario, json.loads(raw))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fail(f"{scenario['name']}: the load tool's result can't be used: {type(error).__name__}: {error}")
    return {**result, "seed": seed, "warmupRequests": warmup_requests}


def main(container, port, model, tokenizer, scenarios):
    started = datetime.datetime.now(datetime.timezone.utc)
    key = output(container, "printenv", "VLLM_API_KEY").strip()
    version = " ".join(output(container, "vllm", "--version").split()[-1:])
    results = []
    for index, scenario in enumerate(json.loads(scenarios)):
        print(f"{scenario['name']}: {scenario['requests']} requests, {scenario['maxConcurrency']} at once", file=sys.stderr, flush=True)
        result = measure(scenario, container, port, model, tokenizer, key, int(started.timestamp()) + index)
        print(
            f"{scenario['name']}: {result['outputTokensPerSecond']:.1f} tokens/s, "
            f"TTFT {result['ttftMedianMilliseconds']:.0f} ms, TPOT {result['tpotMedianMilliseconds']:.1f} ms (medians)",
            file=sys.stderr,
            flush=True,
        )
        results.append(result)
    report = {"tool": f"vllm bench serve {version}", "model": model, "startedAt": started.isoformat(timespec="seconds"), "scenarios": results}
    print(json.dumps(report))


main(*sys.argv[1:])

"""Benchmark driver, run on the head:

    benchmark.py run RESULT_FILE CONTAINER PORT MODEL TOKENIZER SCENARIOS_JSON
    benchmark.py show RESULT_FILE

Each scenario is one run of the load tool in the serving image, `vllm bench serve`, against the server's completions
endpoint: random prompts of a fixed length, the end-of-text token ignored. Prints the figures as JSON, units in the
names, and keeps them in RESULT_FILE. A failed or empty request fails the run: its figures would flatter.
"""

import datetime
import json
import os
import signal
import subprocess
import sys

SEED = 0
PERCENTILES = "50,99"


def fail(text):
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)


def docker_exec(container, *argv, **options):
    return subprocess.run(["docker", "exec", container, *argv], capture_output=True, text=True, **options)


def in_container(container, argv, key):
    """Runs the load tool, its output to stderr; returns its exit code. A cancelled run leaves no load behind."""
    pid_file = "/tmp/dgx-spark-benchmark.pid"
    script = f'echo $$ > {pid_file}; exec "$@"'
    # The key goes by the environment of the docker client, never by an argument.
    tool = subprocess.Popen(
        ["docker", "exec", "--env", "OPENAI_API_KEY", container, "sh", "-c", script, "sh", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "OPENAI_API_KEY": key},
    )

    def cancel(number, _frame):
        docker_exec(container, "sh", "-c", f"kill $(cat {pid_file})")
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, cancel)
    lines = tool.stdout.read().splitlines()
    code = tool.wait()
    if code != 0:
        print("\n".join(lines[-40:]), file=sys.stderr, flush=True)
    return code


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


def measure(scenario, container, port, model, tokenizer, key):
    file = f"dgx-spark-benchmark-{scenario['name']}.json"
    argv = [
        *("vllm", "bench", "serve", "--backend", "vllm", "--base-url", f"http://127.0.0.1:{port}"),
        *("--model", model, "--tokenizer", tokenizer, "--dataset-name", "random", "--ignore-eos"),
        *("--random-input-len", str(scenario["inputTokens"]), "--random-output-len", str(scenario["outputTokens"])),
        *("--num-prompts", str(scenario["requests"]), "--max-concurrency", str(scenario["maxConcurrency"])),
        *("--num-warmups", str(scenario["maxConcurrency"]), "--seed", str(SEED), "--disable-tqdm"),
        *("--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", PERCENTILES),
        *("--save-result", "--save-detailed", "--result-dir", "/tmp", "--result-filename", file),
    ]
    if in_container(container, argv, key) != 0:
        fail(f"{scenario['name']}: the load tool failed, its last lines are above")
    raw = docker_exec(container, "cat", f"/tmp/{file}", check=True).stdout
    docker_exec(container, "rm", f"/tmp/{file}", check=True)
    return figures(scenario, json.loads(raw))


def run(result_file, container, port, model, tokenizer, scenarios):
    started = datetime.datetime.now(datetime.timezone.utc)
    key = docker_exec(container, "printenv", "VLLM_API_KEY", check=True).stdout.strip()
    version = docker_exec(container, "vllm", "--version", check=True).stdout.split()[-1]
    results = []
    for scenario in json.loads(scenarios):
        print(f"{scenario['name']}: {scenario['requests']} requests, {scenario['maxConcurrency']} at once", file=sys.stderr, flush=True)
        result = measure(scenario, container, port, model, tokenizer, key)
        print(
            f"{scenario['name']}: {result['outputTokensPerSecond']:.1f} tokens/s, "
            f"TTFT {result['ttftMedianMilliseconds']:.0f} ms, TPOT {result['tpotMedianMilliseconds']:.1f} ms (medians)",
            file=sys.stderr,
            flush=True,
        )
        results.append(result)
    report = {"tool": f"vllm bench serve {version}", "model": model, "startedAt": started.isoformat(timespec="seconds"), "scenarios": results}
    with open(f"{result_file}.new", "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(f"{result_file}.new", result_file)


def show(result_file):
    with open(result_file, encoding="utf-8") as file:
        print(file.read())


if sys.argv[1] == "run":
    run(*sys.argv[2:])
show(sys.argv[2])

"""The load tools, behind one small interface. Each is a class, made with where the requests go, that has

- `title`, `path`, `dataset`: what it is called, the endpoint that it measures, and what its prompts are, for people
- `package`, `pinned`: its Python package, and what to install where the serving image lacks it
- `own_tokens`: how many tokens it has the server generate in a run besides those that it measures
- `arguments`: its command line for one run, which leaves its result in result.json
- `home`: texts that it wants to find in its home, by path
- `read`: that result as a `Load`
"""

import hashlib
import json
import random
import statistics
from dataclasses import dataclass, field

# Of an answer with fewer pieces than tokens, the share that its first piece may have. Beyond it tokens were held back, and
# nothing tells when they were made.
HELD_BACK = 0.5


@dataclass
class Target:
    """What is measured. The key is for a tool that takes none from its environment: it goes by stdin, in no command line."""

    port: str
    model: str
    tokenizer: str
    key: str


@dataclass
class Load:
    """What one run measured, times in seconds. Lists have an entry a request, and mean nothing where one is not complete."""

    completed: int
    errors: list
    duration: float = 0
    prompt_tokens: int = 0
    tokens: list = field(default_factory=list)
    # Time to the first token, and those from each piece of the answer to the next.
    firsts: list = field(default_factory=list)
    gaps: list = field(default_factory=list)
    # Where requests are sent all at once: tokens a second of the prompts until each has its first token, and of the answers
    # from the first token to the last.
    pp: float | None = None
    tg: float | None = None


def tokens_after_first(gaps, tokens):
    """Of one answer: those that came after its first piece, which has as many as each other."""
    return tokens - tokens / (len(gaps) + 1)


class VllmBench:
    """The engine's own tool, over completions. It takes the first piece for the first token, whatever is in it: its mode for
    chats would take the piece that has a role alone, and does not keep what would tell."""

    title, package, pinned = "vllm bench serve", "vllm", ()
    path = "/v1/completions"
    dataset = "random tokens, a seed a run; end of text ignored"
    own_tokens = 0

    def __init__(self, target):
        self.target = target

    def arguments(self, scenario, level, requests, seed):
        return [
            *("vllm", "bench", "serve", "--backend", "vllm", "--base-url", f"http://127.0.0.1:{self.target.port}"),
            *("--model", self.target.model, "--tokenizer", self.target.tokenizer, "--dataset-name", "random", "--ignore-eos"),
            *("--random-input-len", str(scenario["inputTokens"]), "--random-output-len", str(scenario["outputTokens"])),
            *("--random-prefix-len", str(scenario["prefixTokens"])),
            *("--num-prompts", str(requests), "--max-concurrency", str(level)),
            *("--num-warmups", "0", "--ready-check-timeout-sec", "0", "--seed", str(seed), "--disable-tqdm"),
            *("--save-result", "--save-detailed", "--result-dir", ".", "--result-filename", "result.json"),
        ]

    def home(self, _seed):
        return {}

    def read(self, text):
        raw = json.loads(text)
        # A reason, or a traceback.
        errors = [error.strip().splitlines()[-1] for error in raw.get("errors", []) if error.strip()]
        return Load(
            raw["completed"], errors, raw["duration"], raw["total_input_tokens"], raw["output_lens"], raw["ttfts"], raw["itls"]
        )


class LlamaBenchy:
    """llama-benchy, over chat completions: as many requests at once as the level says, and the next when all are answered.

    Only its events are read. Its own report takes a piece without a token for the end of the prompt, and several tokens in
    the first piece for one; what the answer lacks, or broke off at, it makes up for by counting words."""

    title, package, pinned = "llama-benchy", "llama-benchy", ("llama-benchy==0.4.0", "tabulate==0.10.0")
    path = "/v1/chat/completions"
    dataset = "passages of Python's manual, in an order by a seed a run; end of text ignored"
    # Of two requests by which it learns how many tokens the chat template adds.
    own_tokens = 2

    # It would fetch a novel from the internet, if it did not find it here.
    book = "python-manual"

    def __init__(self, target):
        self.target = target

    def arguments(self, scenario, level, requests, _seed):
        return [
            *("llama-benchy", "--base-url", f"http://127.0.0.1:{self.target.port}/v1", "--api-key", self.target.key),
            *("--model", self.target.model, "--tokenizer", self.target.tokenizer, "--book-url", self.book),
            *("--pp", str(scenario["inputTokens"]), "--tg", str(scenario["outputTokens"]), "--exact-tg"),
            *("--concurrency", str(level), "--runs", str(requests // level)),
            *("--no-warmup", "--skip-coherence", "--latency-mode", "none"),
            # With the ids it would count those that it sees, and not tell the server's own count.
            *("--extra-body", "return_token_ids=false", "--emit-progress", "result.json"),
        ]

    def home(self, seed):
        # Half a megabyte of English that Python brings with it.
        from pydoc_data.topics import topics

        passages = "\n\n".join(topics.values()).split("\n\n")
        random.Random(seed).shuffle(passages)
        return {f".cache/llama-benchy/{hashlib.md5(self.book.encode()).hexdigest()}.txt": "\n\n".join(passages)}

    def read(self, text):
        requests = {}
        for event in map(json.loads, text.splitlines()):
            if "request_id" in event:
                requests.setdefault(event["request_id"], Events()).add(event)
        requests = requests.values()
        if errors := [error for request in requests if (error := request.error())]:
            return Load(len(requests) - len(errors), errors)
        batches = {}
        for request in requests:
            batches.setdefault(request.start["run_index"], []).append(request)
        batches = [Batch(batch) for batch in batches.values()]
        return Load(
            len(requests),
            [],
            sum(batch.end - batch.start for batch in batches),
            sum(request.end["prompt_tokens"] for request in requests),
            [request.end["total_tokens"] for request in requests],
            [request.first["ttft_s"] for request in requests],
            [request.gaps() for request in requests],
            statistics.median(batch.pp for batch in batches),
            statistics.median(batch.tg for batch in batches),
        )


class Events:
    """What llama-benchy tells of one request."""

    def __init__(self):
        self.start = self.first = self.end = None
        self.pieces = []

    def add(self, event):
        match event["type"]:
            case "request_start":
                self.start = event
            case "request_first_token":
                self.first = event
            case "tokens":
                self.pieces.append(event)
            case "request_end":
                self.end = event

    def error(self):
        """Why it can't be measured; empty when it can."""
        if self.end is None:
            return "the answer did not end"
        if self.end["error"]:
            return " ".join(self.end["error"].split())
        if self.first is None:
            return "the answer is empty"
        if not self.end["prompt_tokens"]:
            return "the answer has no count of its tokens at its end (usage): it broke off, or the server tells none"
        lengths = [len(piece["snippet"]) for piece in self.pieces]
        share = lengths[0] / sum(lengths)
        if 1 < len(lengths) < self.end["total_tokens"] and share > HELD_BACK:
            return f"{share:.0%} of the answer came in the first of {len(lengths)} pieces: the server held tokens back"
        return ""

    def times(self):
        return [piece["ts"] for piece in self.pieces]

    def gaps(self):
        times = self.times()
        return [after - before for before, after in zip(times, times[1:])]


class Batch:
    """Requests that were sent at once."""

    def __init__(self, requests):
        firsts = [request.times()[0] for request in requests]
        self.start = min(first - request.first["ttft_s"] for first, request in zip(firsts, requests))
        self.end = max(request.times()[-1] for request in requests)
        prompts = sum(request.end["prompt_tokens"] for request in requests)
        answers = sum(tokens_after_first(request.gaps(), request.end["total_tokens"]) for request in requests)
        self.pp = prompts / (max(firsts) - self.start)
        # What came in one piece, which is no measurement, took no time.
        elapsed = self.end - min(firsts)
        self.tg = answers / elapsed if elapsed else 0


TOOLS = {"vllm-bench": VllmBench, "llama-benchy": LlamaBenchy}

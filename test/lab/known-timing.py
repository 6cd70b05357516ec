"""An API whose timing is known, to measure the measuring: known-timing.py PORT

Answers completions and chat completions with the first token after 200 ms and then 20 a second. A streamed chat begins with a
piece that has a role and no token, at once, and ends with one that has neither; the first half of its tokens is thinking. How
else a server may behave is chosen by the number of tokens that are asked for: see CASES.
"""

import collections
import http.server
import json
import sys
import threading
import time

FIRST, GAP = 0.2, 0.05


class Slots:
    """Room for so many at once; the others wait, and go in the order in which they came, which a semaphore does not promise."""

    def __init__(self, count):
        self.free, self.waiting, self.lock = count, collections.deque(), threading.Lock()

    def __enter__(self):
        turn = threading.Event()
        with self.lock:
            if self.free > 0:
                self.free -= 1
                return
            self.waiting.append(turn)
        turn.wait()

    def __exit__(self, *_):
        with self.lock:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.free += 1


# Tokens of the prompts that are sent as text.
PROMPT = 64
CASES = {
    20: {},
    24: {"tokens_a_piece": 4},
    22: {"stall": 0.5},
    18: {"thinking": "reasoning_content"},
    16: {"answers": False},
    10: {"usage": False},
    11: {"empty_first": True},
    12: {"error_after": 5},
    13: {"status": 503},
    14: {"buffered": True},
    30: {"first_piece": 20},
    21: {"slots": Slots(2)},
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    # What is written is sent when it is flushed, or at the end.
    wbufsize = -1
    buffered = False

    def log_message(self, *_args):
        pass

    def event(self, data):
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        if not self.buffered:
            self.wfile.flush()

    def do_GET(self):
        self.send_error(404)

    def do_POST(self):
        if not self.path.endswith("/completions"):
            self.send_error(404)
            return
        began = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = body["max_tokens"]
        prompt = len(body["prompt"]) if isinstance(body.get("prompt"), list) else PROMPT
        usage = {"prompt_tokens": prompt, "completion_tokens": count}
        # What is not streamed is a warm-up.
        if not body.get("stream"):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"text": "x", "message": {"content": "x"}}], "usage": usage}).encode())
            return
        case = CASES[count]
        if "status" in case:
            self.send_error(case["status"])
            return
        self.send_response(200)
        self.end_headers()
        if "slots" in case:
            with case["slots"]:
                self.stream(time.monotonic(), "messages" in body, count, usage)
        else:
            self.stream(began, "messages" in body, count, usage, **case)

    def stream(
        self,
        began,
        chat,
        count,
        usage_of,
        tokens_a_piece=1,
        first_piece=0,
        stall=0,
        thinking="reasoning",
        answers=True,
        usage=True,
        empty_first=False,
        error_after=None,
        buffered=False,
    ):
        self.buffered = buffered
        if chat:
            self.event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        if empty_first:
            self.event({"choices": [{"text": ""}]})
        token = 0
        while token < count:
            due = began + FIRST + token * GAP + (stall if token > count / 2 else 0)
            time.sleep(max(0, due - time.monotonic()))
            if token == error_after:
                self.event({"error": {"message": "the engine is gone"}})
                return
            tokens = first_piece if token == 0 and first_piece else tokens_a_piece
            # Without usage a tool counts the text, in which a word is no token.
            text = " spark serving" * tokens
            kind = thinking if token < count / 2 or not answers else "content"
            self.event({"choices": [{"delta": {kind: text}} if chat else {"text": text}]})
            token += tokens
        if chat:
            self.event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        if usage:
            self.event({"choices": [], "usage": usage_of})
        self.wfile.write(b"data: [DONE]\n\n")


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

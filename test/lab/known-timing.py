"""An API whose timing is known, to measure the measuring: known-timing.py PORT

Answers completions with the first token after 200 ms and then 20 a second. How else a server may behave is chosen by the
number of tokens that are asked for: see CASES.
"""

import http.server
import json
import sys
import time

FIRST, GAP = 0.2, 0.05
CASES = {
    20: {},
    24: {"tokens_a_piece": 4},
    22: {"stall": 0.5},
    10: {"usage": False},
    11: {"empty_first": True},
    12: {"error_after": 5},
    13: {"status": 503},
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_args):
        pass

    def event(self, data):
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def do_GET(self):
        self.send_error(404)

    def do_POST(self):
        began = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count, case = body["max_tokens"], CASES[body["max_tokens"]]
        prompt = len(body["prompt"]) if isinstance(body["prompt"], list) else PROMPT
        usage = {"prompt_tokens": prompt, "completion_tokens": count}
        # What is not streamed is a warm-up.
        status = case.get("status", 200) if body.get("stream") else 200
        self.send_response(status)
        self.end_headers()
        if status != 200:
            return
        if not body.get("stream"):
            self.wfile.write(json.dumps({"choices": [{"text": "x"}], "usage": usage}).encode())
            return
        self.stream(began, count, usage, **{name: value for name, value in case.items() if name != "status"})

    def stream(self, began, count, usage_of, tokens_a_piece=1, stall=0, usage=True, empty_first=False, error_after=None):
        if empty_first:
            self.event({"choices": [{"text": ""}]})
        for token in range(0, count, tokens_a_piece):
            due = began + FIRST + token * GAP + (stall if token > count / 2 else 0)
            time.sleep(max(0, due - time.monotonic()))
            if token == error_after:
                self.event({"error": {"message": "the engine is gone"}})
                return
            # Without usage the tool counts the text, in which a word is no token.
            self.event({"choices": [{"text": " spark serving" * tokens_a_piece}]})
        if usage:
            self.event({"choices": [], "usage": usage_of})
        self.wfile.write(b"data: [DONE]\n\n")


# Tokens of the prompts that are sent as text.
PROMPT = 64
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

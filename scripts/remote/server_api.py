"""The server's OpenAI API, as seen on the head. The key is read from the server's container, so that no step carries it."""

import http.client
import json
import subprocess
import urllib.error
import urllib.request

from containers import fail

# The server is on this machine: a proxy of the environment has no business with it, nor with the key.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Api:
    """The API of one server. `last` is the latest answer: path, status, and JSON or text."""

    def __init__(self, container, port):
        self.base = f"http://127.0.0.1:{port}/v1"
        self.last = None
        done = subprocess.run(["docker", "exec", container, "printenv", "VLLM_API_KEY"], capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"container {container} has no API key to read: {done.stderr.strip() or 'VLLM_API_KEY is not set'}")
        self.key = done.stdout.strip()

    def request(self, path, body=None, timeout=10, key=True):
        """Status and JSON of one request; the body's text unless the status is 200; status None when there was no answer."""
        request = urllib.request.Request(self.base + path, data=None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        if key:
            request.add_header("Authorization", f"Bearer {self.key}")
        try:
            try:
                response = DIRECT.open(request, timeout=timeout)
            except urllib.error.HTTPError as error:
                response = error  # It is the response too.
            with response:
                text = response.read().decode("utf-8", "replace")
            status, answer = response.status, json.loads(text) if response.status == 200 else text
        except (OSError, http.client.HTTPException, ValueError) as error:
            status, answer = None, str(error) or type(error).__name__
        self.last = (path, status, answer)
        return status, answer

    def told(self):
        """The latest answer, for a person."""
        if self.last is None:
            return "nothing was asked"
        path, status, answer = self.last
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return f"/v1{path}: {'no answer' if status is None else f'status {status}'}: {text[:400]}"

    def models(self):
        """Ids that the server names; None when it does not answer, or answers something else."""
        status, answer = self.request("/models")
        try:
            return [str(each["id"]) for each in answer["data"]] if status == 200 else None
        except (KeyError, TypeError):
            return None

    def chat(self, model, text, max_tokens=32, timeout=120, **more):
        """One chat completion, not streamed."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, **more}
        return self.request("/chat/completions", body, timeout)

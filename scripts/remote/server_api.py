"""The server's OpenAI API, as seen on the head. The key is read from the server's container, so that no step carries it."""

import json
import subprocess
import urllib.error
import urllib.request

from containers import fail


class Api:
    def __init__(self, container, port):
        self.base = f"http://127.0.0.1:{port}/v1"
        done = subprocess.run(["docker", "exec", container, "printenv", "VLLM_API_KEY"], capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"container {container} has no API key to read: {done.stderr.strip()}")
        self.key = done.stdout.strip()

    def request(self, path, body=None, timeout=10, key=True):
        """Status and JSON of one request; status None when there was no answer."""
        request = urllib.request.Request(self.base + path, data=None if body is None else json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        if key:
            request.add_header("Authorization", f"Bearer {self.key}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            return None, str(error)

    def models(self):
        """Ids that the server names; None when it does not answer."""
        status, answer = self.request("/models")
        return [each["id"] for each in answer["data"]] if status == 200 else None

    def chat(self, model, text, max_tokens=32, timeout=120, **more):
        """One chat completion, not streamed."""
        body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, **more}
        return self.request("/chat/completions", body, timeout)

"""Tries what the model is to be used for: smoke.py CONTAINER PORT MODEL MAX_TOKENS TOOLS

MAX_TOKENS bounds each answer. TOOLS is `tools`, or `no-tools` where the server is not to call any.
"""

import copy
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from containers import fail
from server_api import Api

container, port, model, max_tokens, tools = sys.argv[1:]
if tools not in ("tools", "no-tools"):
    fail(f"tools or no-tools, not {tools}")
max_tokens = int(max_tokens)
api = Api(container, port)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def ask(text, **more):
    """The API as it was asked for a completion; each has a latest answer of its own."""
    asked = copy.copy(api)
    asked.chat(model, text, max_tokens, **more)
    return asked


def message(what, asked):
    """The message of a completion, and how many tokens it has."""
    _, status, answer = asked.last
    try:
        if status == 200:
            reply, tokens = answer["choices"][0]["message"], answer["usage"]["completion_tokens"]
            if isinstance(reply, dict) and isinstance(tokens, int) and tokens > 0:
                return reply, tokens
    except (KeyError, IndexError, TypeError):
        pass
    fail(f"{what}: no completion in the answer of {asked.told()}")


def valid_call(call):
    try:
        return call["function"]["name"] == "get_weather" and "city" in json.loads(call["function"]["arguments"])
    except (KeyError, TypeError, ValueError):
        return False


status, _ = api.request("/models", key=False)
if status is None:
    fail(f"the server does not answer: {api.told()}")
if status != 401:
    fail(f"a request without the key got status {status}, not 401: the API is open")

with ThreadPoolExecutor() as pool:
    chat = pool.submit(ask, "Who are you? One short sentence.")
    tool = pool.submit(ask, "What is the weather in Paris?", tools=[WEATHER]) if tools == "tools" else None
reply, tokens = message("chat", chat.result())
thinking = reply.get("reasoning") or reply.get("reasoning_content")
print(f"{model}: {str(reply.get('content') or thinking or '')[:200]!r}", file=sys.stderr)

calls = message("chat with a tool", tool.result())[0].get("tool_calls") if tool else []
print(
    json.dumps(
        {
            "keyRequired": True,
            "reasoning": bool(thinking),
            "toolCall": isinstance(calls, list) and any(valid_call(call) for call in calls),
            "completionTokens": tokens,
        }
    )
)

"""Tries what the model is to be used for: smoke.py CONTAINER PORT MODEL"""

import json
import sys

from containers import fail
from server_api import Api

container, port, model = sys.argv[1:]
api = Api(container, port)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def message(what, status, answer):
    if status != 200:
        fail(f"{what}: status {status}: {str(answer)[:400]}")
    return answer["choices"][0]["message"]


def valid_call(call):
    try:
        return call["function"]["name"] == "get_weather" and "city" in json.loads(call["function"]["arguments"])
    except (KeyError, TypeError, ValueError):
        return False


status, _ = api.request("/models", key=False)
if status != 401:
    fail(f"a request without the key got status {status}, not 401: the API is open")

status, answer = api.chat(model, "Who are you? One short sentence.", max_tokens=256)
reply = message("chat", status, answer)
thinking = reply.get("reasoning") or reply.get("reasoning_content")
print(f"{model}: {str(reply.get('content') or thinking or '')[:200]!r}", file=sys.stderr)

status, tools_answer = api.chat(model, "What is the weather in Paris?", max_tokens=512, tools=[WEATHER])
calls = message("chat with a tool", status, tools_answer).get("tool_calls") or []
print(
    json.dumps(
        {
            "keyRequired": True,
            "reasoning": bool(thinking),
            "toolCall": any(valid_call(call) for call in calls),
            "completionTokens": answer["usage"]["completion_tokens"],
        }
    )
)

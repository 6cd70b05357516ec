"""Runs the engine's load tool inside the serving image, several times in one process: load_tool.py

Each line of stdin is a JSON list, the words of one command line that begins with `vllm`. Each is answered by one line on
stdout: the result that the tool saved, or null when it failed. What the tool says goes to stderr. One process, because the
tool takes longer to start than many a measurement does.

The end of stdin is the end of whoever wanted this: it ends at once then, with the load that it makes.
"""

import importlib.metadata
import json
import os
import queue
import sys
import tempfile
import threading
import traceback

lines = queue.Queue()


def read():
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def run(argv, folder):
    """The result of one run; None when it failed."""
    # The program that the command's name stands for.
    (command,) = importlib.metadata.entry_points(group="console_scripts", name=argv[0])
    sys.argv = [*argv, "--result-dir", folder, "--result-filename", "result.json"]
    try:
        command.load()()
    except SystemExit as end:
        if end.code:
            return None
    except Exception:
        traceback.print_exc()
        return None
    try:
        with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        print(f"the load tool saved no result: {error}", file=sys.stderr)
        return None


# The tool, and whatever it starts, writes to stderr.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
threading.Thread(target=read, daemon=True).start()
while True:
    with tempfile.TemporaryDirectory() as place:
        answer = run(json.loads(lines.get()), place)
    sys.stdout.flush()
    print(json.dumps(answer), file=answers, flush=True)

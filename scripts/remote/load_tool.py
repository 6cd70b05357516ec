"""Runs a load tool inside the serving image, several times in one process: load_tool.py FOLDER

FOLDER has Python packages that the image lacks. Each line of stdin is a JSON object: `argv`, the words of the tool's command
line, and `home`, texts by path. It is run in a folder of its own, which is its home too when there are such texts. Each line
is answered by one on stdout: the text of the file result.json that the tool left there, as JSON, or null when it failed. What
the tool says goes to stderr. One process, because a tool takes longer to start than many a measurement does.

The end of stdin is the end of whoever wanted this: it ends at once then, with the load that it makes.
"""

import importlib.metadata
import json
import os
import pathlib
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


def run(argv, home, folder):
    """The result of one run; None when it failed."""
    os.chdir(folder)
    for name, text in home.items():
        os.environ["HOME"] = folder
        path = pathlib.Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    # The program that the command's name stands for.
    (command,) = importlib.metadata.entry_points(group="console_scripts", name=argv[0])
    sys.argv = argv
    try:
        command.load()()
    except SystemExit as end:
        if end.code:
            return None
    except Exception:
        traceback.print_exc()
        return None
    try:
        return pathlib.Path(folder, "result.json").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"the load tool saved no result: {error}", file=sys.stderr)
        return None


# The tool, and whatever it starts, writes to stderr.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
# The image's own come first.
sys.path.append(sys.argv[1])
# The server is on this machine: a proxy of the environment has no business with it.
os.environ["no_proxy"] = "127.0.0.1"
threading.Thread(target=read, daemon=True).start()
while True:
    with tempfile.TemporaryDirectory() as place:
        answer = run(**json.loads(lines.get()), folder=place)
    sys.stdout.flush()
    print(json.dumps(answer), file=answers, flush=True)

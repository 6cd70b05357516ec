"""Run by the image's Python: prints, as JSON, where the commands vllm and ray are, and the versions of what is installed.

The engine itself is not imported: that takes long, and without a GPU some refuse it.
"""

import json
import os
import platform
import shutil
import subprocess
import sys

COMMANDS = ("vllm", "ray")
VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def python_of(command):
    """The Python that a command of this name runs in: the one beside it, in a virtual environment that is on the PATH or not."""
    folder = os.path.dirname(os.path.realpath(shutil.which(command) or ""))
    return shutil.which("python3", path=folder) or sys.executable


def version(command):
    """The version of the package; None where its Python knows none."""
    done = subprocess.run([python_of(command), "-c", VERSION, command], capture_output=True, encoding="utf-8")
    return done.stdout.strip() or None


print(
    json.dumps(
        {
            "commands": {name: shutil.which(name) for name in COMMANDS},
            "versions": {**{name: version(name) for name in COMMANDS}, "python": platform.python_version()},
        }
    )
)

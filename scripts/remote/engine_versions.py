"""Run by the image's Python: prints, as JSON, where the commands vllm and ray are, and the versions of what is installed.

vLLM itself is not imported: that takes long, and without a GPU some builds refuse it.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys

VERSION = "import importlib.metadata; print(importlib.metadata.version('vllm'))"


def last_line(argv):
    """The last line that a program prints; empty where it can't be run."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
    except OSError:
        return ""
    return (done.stdout.strip().splitlines() or [""])[-1] if done.returncode == 0 else ""


def vllm_version(command):
    """What the Python beside the command knows of the package: in a virtual environment it need not be the one on the PATH."""
    python = shutil.which("python3", path=os.path.dirname(os.path.realpath(command))) or sys.executable
    return last_line([python, "-c", VERSION]) or None


def ray_version(command):
    found = re.search(r"version (\S+)", last_line([command, "--version"]))
    return found and found[1]


vllm, ray = shutil.which("vllm"), shutil.which("ray")
print(
    json.dumps(
        {
            "commands": {"vllm": vllm, "ray": ray},
            "versions": {
                "vllm": vllm and vllm_version(vllm),
                "ray": ray and ray_version(ray),
                "python": platform.python_version(),
            },
        }
    )
)

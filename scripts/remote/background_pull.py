"""Pulls an image, whoever waits for it: background_pull.py FOLDER REFERENCE

Ends with the pull, or by SIGTERM. On stdin comes JSON: name and password for the registry, or null. FOLDER/state.json tells how far it
is: `reference`, `pid`, `login` (a folder, in memory, that is gone in the end), `layers` and how many are `complete`, bytes `done` of the
`total` that is known, how many of these are `unpacked`, and in the end `code`, docker's, and `seconds`.
"""

import base64
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from children import die_with_parent
from files import write_whole

# As docker writes for a terminal; elsewhere it tells no bytes: `0123456789ab: Downloading [==>    ]  12.3MB/1.2GB`.
LINE = re.compile(r"(?<![0-9a-f])([0-9a-f]{12}): ([A-Z][A-Za-z ]*[a-z])(?:\s+(?:\[[=> ]*\]\s*)?([\d.]+)([kMGT]?B)/([\d.]+)([kMGT]?B))?")
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
COMING = ("Downloading", "Pulling layer fs")
CAME = ("Verifying Checksum", "Download complete", "Extracting", "Pull complete")
# Under this name docker keeps the login to its own registry.
DOCKER_HUB = "https://index.docker.io/v1/"


def registry_of(reference):
    """The registry of a reference, as docker names it among the logins."""
    first, _, rest = reference.partition("/")
    has_registry = rest and (first == "localhost" or re.search(r"[.:]", first))
    return first if has_registry and first not in ("docker.io", "index.docker.io") else DOCKER_HUB


def write_login(place, registry, name, password):
    """Makes `place` a configuration of docker's with this login. `docker login` might hand the password to the user's keyring."""
    auth = base64.b64encode(f"{name}:{password}".encode()).decode()
    write_whole(os.path.join(place, "config.json"), json.dumps({"auths": {registry: {"auth": auth}}}))


def daemon():
    """The daemon that this user's docker talks to, as options: another configuration does not know it."""
    argv = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, encoding="utf-8")
    return ["--host", done.stdout.strip()] if done.returncode == 0 and done.stdout.strip() else []


class Layers:
    """What docker says of the image's layers."""

    def __init__(self):
        # By layer: what docker says of it, its bytes, those that came, and those that are unpacked.
        self.states, self.total, self.done, self.unpacked = {}, {}, {}, {}

    def see(self, text):
        for layer, state, count, unit, total, total_unit in LINE.findall(text):
            self.states[layer] = state
            if total:
                counted = self.done if state in COMING else self.unpacked
                counted[layer] = float(count) * UNITS[unit]
                self.total[layer] = float(total) * UNITS[total_unit]
            if state in CAME and layer in self.total:
                self.done[layer] = self.total[layer]
            if state == "Pull complete" and layer in self.total:
                self.unpacked[layer] = self.total[layer]

    def told(self):
        return {
            "layers": len(self.states),
            "complete": sum(state in ("Pull complete", "Already exists") for state in self.states.values()),
            "done": round(sum(self.done.values())),
            "total": round(sum(self.total.values())),
            "unpacked": round(sum(self.unpacked.values())),
        }


def read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""  # So Linux says that nobody writes any more.


def main(folder, reference):
    began, layers = time.monotonic(), Layers()
    login = json.loads(sys.stdin.read() or "null")
    place = tempfile.mkdtemp(prefix="dgx-spark-serving-login-", dir="/dev/shm") if login else None
    state = {"reference": reference, "pid": os.getpid(), "login": place}

    def tell(**more):
        write_whole(os.path.join(folder, "state.json"), json.dumps({**state, **layers.told(), **more}))

    pull = None
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        tell()
        options = []
        if login:
            write_login(place, registry_of(reference), *login)
            options = ["--config", place, *daemon()]
        own, dockers = pty.openpty()
        argv = ["docker", *options, "pull", reference]
        pull = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=dockers, preexec_fn=die_with_parent)
        os.close(dockers)
        text, told = "", 0
        piece = b"said nothing yet"
        while piece:
            if select.select([own], [], [], 1)[0]:
                piece = read(own)
                # The last line may not have come whole.
                *lines, text = re.split(r"[\r\n]", text + piece.decode("utf-8", "replace"))
                layers.see("\n".join(lines))
            if time.monotonic() - told > 1:
                told = time.monotonic()
                tell()
        code = pull.wait()
        tell(code=code, seconds=round(time.monotonic() - began, 1))
    finally:
        if pull:
            pull.kill()
        if place:
            shutil.rmtree(place, ignore_errors=True)


main(*sys.argv[1:])

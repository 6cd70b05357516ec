"""Pulls an image, whoever waits for it: background_pull.py FOLDER REFERENCE

Ends with the pull, or by SIGTERM. FOLDER/state.json tells how far it is: `reference`, `pid`, `layers` and `complete` of them, bytes
`done` of the `total` that is known, how many of these are `unpacked`, and in the end `code`, docker's, and `seconds`. FOLDER/log has docker's errors.
"""

import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

from files import write_whole

# As docker writes for a terminal; elsewhere it tells no bytes: `0123456789ab: Downloading [==>    ]  12.3MB/1.2GB`.
LINE = re.compile(r"([0-9a-f]{12}): ([A-Z][A-Za-z ]*[a-z])(?:\s+(?:\[[=> ]*\]\s*)?([\d.]+)([kMGT]?B)/([\d.]+)([kMGT]?B))?")
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def registry_of(reference):
    """The registry in a reference as `docker login` takes it; empty for Docker's own."""
    first, _, rest = reference.partition("/")
    return first if rest and (first == "localhost" or re.search(r"[.:]", first)) else ""


def login_place(folder):
    """Where the login of this folder's pull is, in memory."""
    return f"/dev/shm/dgx-spark-serving-login-{os.getuid()}-{hashlib.sha256(os.path.abspath(folder).encode()).hexdigest()[:12]}"


def logged_in(reference, place):
    """The folder with a login to the registry; None: this user's own logins are used."""
    # Of a pull that was killed.
    shutil.rmtree(place, ignore_errors=True)
    username = os.environ.get("REGISTRY_USERNAME")
    if not username:
        return None
    os.mkdir(place, 0o700)
    registry = registry_of(reference)
    argv = ["docker", "--config", place, "login", "--username", username, "--password-stdin", *([registry] if registry else [])]
    done = subprocess.run(argv, input=os.environ["REGISTRY_PASSWORD"], encoding="utf-8", stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return place


class Layers:
    """What docker says of the image's layers."""

    def __init__(self):
        # By layer: what docker says of it, bytes that came and in all, and bytes of these that are unpacked.
        self.states, self.bytes, self.unpacked = {}, {}, {}

    def see(self, text):
        for layer, state, done, unit, total, total_unit in LINE.findall(text):
            self.states[layer] = state
            if state == "Downloading" and total:
                self.bytes[layer] = [float(done) * UNITS[unit], float(total) * UNITS[total_unit]]
            elif layer in self.bytes and state != "Downloading":
                self.bytes[layer][0] = self.bytes[layer][1]
            if state == "Extracting" and total:
                self.unpacked[layer] = float(done) * UNITS[unit]
            elif layer in self.bytes and state == "Pull complete":
                self.unpacked[layer] = self.bytes[layer][1]

    def told(self):
        return {
            "layers": len(self.states),
            "complete": sum(state in ("Pull complete", "Already exists") for state in self.states.values()),
            "done": round(sum(done for done, _ in self.bytes.values())),
            "total": round(sum(total for _, total in self.bytes.values())),
            "unpacked": round(sum(self.unpacked.values())),
        }


def read(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""  # So Linux says that nobody writes any more.


def main(folder, reference):
    began, layers = time.monotonic(), Layers()
    state = {"reference": reference, "pid": os.getpid()}

    def tell(**more):
        write_whole(os.path.join(folder, "state.json"), json.dumps({**state, **layers.told(), **more}))

    tell()
    place, pull = login_place(folder), None

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        login = logged_in(reference, place)
        own, dockers = pty.openpty()
        argv = ["docker", *(["--config", login] if login else []), "pull", reference]
        pull = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=dockers)
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
        shutil.rmtree(place, ignore_errors=True)


main(*sys.argv[1:])

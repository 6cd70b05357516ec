"""A pull that nobody has to wait for: Docker would throw away all that it has of an image whose pull nobody waits for any more.

In the deployment's folder, for each machine whose home it is, stands pull/MACHINE with
    lock        held for as long as the pull runs
    state.json  see background_pull.py
    log         docker's errors
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from files import HERE
from model_files import Progress, size

POLL_SECONDS = 0.2
# After that it is not asked again.
KINDLY_SECONDS = 10


def machine():
    """This machine's id: a home may be one of several machines."""
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            return file.read().strip() or "unknown"
    except FileNotFoundError:
        return "unknown"


class BackgroundPull:
    def __init__(self, keep):
        self.folder = os.path.join(keep, "pull", machine())
        os.makedirs(self.folder, 0o700, exist_ok=True)

    def lock(self):
        """The lock's file; None: a pull runs."""
        file = open(os.path.join(self.folder, "lock"), "w", encoding="ascii")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
            return None

    def state(self):
        try:
            with open(os.path.join(self.folder, "state.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

    def log(self):
        """What docker said at the end."""
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as file:
            return "\n".join(file.read().strip().splitlines()[-5:])

    def end(self, wanted=None):
        """Ends a pull of another image than the wanted one, and removes what one that was killed left."""
        began, number = time.monotonic(), signal.SIGTERM
        while (free := self.lock()) is None:
            running = self.state()
            if wanted is not None and running.get("reference") == wanted:
                return
            # Its process tells of itself a moment after it has the lock.
            if "pid" in running and number is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(running["pid"], number)
                number = None
            if number is None and time.monotonic() - began > KINDLY_SECONDS:
                began, number = time.monotonic(), signal.SIGKILL
            time.sleep(POLL_SECONDS)
        with free:
            if login := self.state().get("login"):
                shutil.rmtree(login, ignore_errors=True)

    def start(self, reference, login):
        """Begins it, or goes on with the one that runs. `login`: name and password; None: by this user's own logins."""
        if (free := self.lock()) is None:
            return
        with free, open(os.path.join(self.folder, "log"), "wb") as log:
            # The former one's.
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.folder, "state.json"))
            argv = [sys.executable, "-B", os.path.join(HERE, "background_pull.py"), self.folder, reference]
            started = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, pass_fds=[free.fileno()]
            )
            with contextlib.suppress(BrokenPipeError), started.stdin as pipe:
                pipe.write(json.dumps(login).encode())

    def follow(self):
        """Tells how far it is until it ended; its last state."""
        progress = None
        while (ended := self.lock()) is None:
            if (state := self.state()).get("total"):
                progress = progress or Progress("", 0, state["done"])
                progress.total = state["total"]
                progress.what = f"pull: {state['complete']} of {state['layers']} layers, {size(state['unpacked'])} unpacked"
                progress.at(state["done"])
            time.sleep(POLL_SECONDS)
        ended.close()
        return self.state()

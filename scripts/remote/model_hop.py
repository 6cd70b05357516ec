"""Sends a model to the next node of the chain over the fabric: each file as soon as it is known to be right here, while others
still arrive. The other end is receive_model.py, which says what it wants, reads what arrived, and sends it on.

Both say a line of JSON at a time. The sender's are the manifest first, then each list of names when rsync has sent it, and now and
then an empty one: it is still there. The receiver's are objects with one of
    wanted    names of the files that are to be sent
    right     name of a file that arrived as it should
    wrong     name of one that was sent, and has other bytes or is not there
    progress  bytes done and bytes in all, of each node from there on
    failed    why it ends, for people
    done      bytes that came and the seconds that it took, of each node from there on
"""

import json
import os
import queue
import shlex
import shutil
import subprocess
import tempfile
import threading

from children import die_with_parent
from fabric_ssh import ssh_config

ALIVE_SECONDS = 10
# How many run at once: while one begins, the others use the link.
LANES = 3
# In the model's folder there: files on their way; and beside where it belongs what came of one before its connection was lost.
DRAFTS, PARTIAL = ".dgx-spark-serving-drafts", ".dgx-spark-serving-partial"
RSYNC = [
    *("rsync", "--copy-links", "--times", "--omit-dir-times", "--chmod=D755,F644", "--timeout=120"),
    *(f"--temp-dir={DRAFTS}", f"--partial-dir={PARTIAL}"),
    # What is wanted is known: rsync would take one with the right size and time for right.
    "--ignore-times",
]


class Failed(Exception):
    """Why a model can't be sent or received, for people."""


class Hop(threading.Thread):
    """One link of the chain.

    node       name of this node
    folder     the model's folder here
    keep       the deployment's folder here, in which the key is
    manifest   what the next node is to hold
    following  the next node: name, address, port, user, hostKey
    """

    def __init__(self, node, folder, keep, manifest, following):
        super().__init__(daemon=True)
        self.node, self.folder, self.manifest, self.following = node, folder, manifest, following
        self.key = os.path.join(keep, "model_ed25519")
        self.changed = threading.Condition()
        # Names of files: right here, wanted there and not sent, wanted there and not right yet, arrived wrong once.
        self.right, self.unsent, self.unproved, self.wrong = set(), None, set(), set()
        self.lines = queue.SimpleQueue()
        self.progress = {}
        self.done, self.failure = None, None
        self.children = []

    def offer(self, names):
        """These files are right here."""
        with self.changed:
            self.right.update(names)
            self.changed.notify_all()

    def result(self):
        """Bytes and seconds of each node from the next on, by name. Raises Failed."""
        self.join()
        if self.failure:
            raise Failed(self.failure)
        return self.done

    def stop(self):
        """Ends it now, with what it started."""
        for child in list(self.children):
            child.kill()

    def run(self):
        place = tempfile.mkdtemp(prefix="model-")
        try:
            self._send(ssh_config(place, self.key, self.following))
        except Failed as failure:
            self._fail(str(failure))
        except OSError as error:
            self._fail(f"{self.node} can't send the model to {self.following['name']}: {error}")
        finally:
            self.stop()
            shutil.rmtree(place, ignore_errors=True)

    def _fail(self, text):
        """Of several reasons the first counts: others follow from it."""
        with self.changed:
            self.failure = self.failure or text
            self.changed.notify_all()

    def _send(self, config):
        argv = ["ssh", "-F", config, "next", "model"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        session = subprocess.Popen(argv, **pipes, encoding="utf-8", preexec_fn=die_with_parent)
        self.children.append(session)
        threading.Thread(target=self._speak, args=(session,), daemon=True).start()
        listener = threading.Thread(target=self._listen, args=(session,), daemon=True)
        listener.start()
        lanes = threading.Semaphore(LANES)
        while lanes.acquire() and (batch := self._next_batch()):
            threading.Thread(target=self._send_batch, args=(config, batch, lanes), daemon=True).start()
        if not self.failure:
            listener.join()
        if self.done is None:
            raise Failed(
                f"{self.node} has no connection to {self.following['name']} over the fabric (any more): "
                f"{self.following['user']}@{self.following['address']}:{self.following['port']}. If a key or a file of ours "
                "was changed by hand on either: pulumi up --replace '**model-*'"
            )

    def _speak(self, session):
        """Sends what is to be said, and a sign of life now and then."""
        line = json.dumps(self.manifest)
        try:
            while session.poll() is None:
                session.stdin.write(f"{line}\n")
                session.stdin.flush()
                try:
                    line = json.dumps(self.lines.get(timeout=ALIVE_SECONDS))
                except queue.Empty:
                    line = ""
        except (BrokenPipeError, ValueError):
            pass  # It is gone: why is what it said, or did not say.

    def _listen(self, session):
        for line in session.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self._fail(
                    f"{self.following['name']} says {json.dumps(line.strip()[:80])} where it should say how the model arrives: "
                    "silence its shell where nobody is there, in ~/.bashrc: [ -t 1 ] || return"
                )
                self.stop()
                break
            with self.changed:
                if "wanted" in message:
                    self.unsent, self.unproved = set(message["wanted"]), set(message["wanted"])
                self.unproved.discard(message.get("right"))
                if name := message.get("wrong"):
                    self._again(name)
                self.progress.update(message.get("progress", {}))
                self.done = message.get("done")
                self.failure = self.failure or message.get("failed")
                self.changed.notify_all()
            if self.failure:
                # What is under way is of no use any more.
                self.stop()
        with self.changed:
            # It ended, and there is no more to wait for.
            self.unsent, self.unproved = set(), set()
            self.changed.notify_all()

    def _again(self, name):
        if name in self.wrong:
            self.failure = (
                f"{name} arrived on {self.following['name']} with other bytes than it has on {self.node}, or not at all, "
                f"twice: look at the memory and the disk of both (dmesg, smartctl)"
            )
        self.wrong.add(name)
        self.unsent.add(name)

    def _next_batch(self):
        """Names to send now; empty: there are no more, or it failed."""
        with self.changed:
            while not self.failure and (self.unsent is None or self.unproved):
                if batch := (self.unsent or set()) & self.right:
                    self.unsent -= batch
                    return sorted(batch)
                self.changed.wait()
            return []

    def _send_batch(self, config, names, lanes):
        try:
            self._rsync(config, names)
            self.lines.put(names)
        except (Failed, OSError) as failure:
            self._fail(str(failure))
        finally:
            lanes.release()

    def _rsync(self, config, names):
        argv = [*RSYNC, "--rsh", f"ssh -F {shlex.quote(config)}", "--from0", "--files-from=-", f"{self.folder}/", "next::model/"]
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        rsync = subprocess.Popen(argv, **pipes, encoding="utf-8", errors="surrogateescape", preexec_fn=die_with_parent)
        self.children.append(rsync)
        # With a folder before it no name is a comment.
        _, said = rsync.communicate("\0".join(f"./{name}" for name in names))
        self.children.remove(rsync)
        if rsync.returncode != 0:
            last = "\n".join(said.strip().splitlines()[-5:])
            raise Failed(f"{last}\n{self.node} can't send the model to {self.following['name']}: rsync's words are above")

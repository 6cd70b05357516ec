"""Receives a model from the node before in the chain, and sends it on: receive_model.py KEEP

Run by the node before, by a key that may do nothing else (see receive-model.sh); model_hop.py is its other end, and tells what
the two say. KEEP/receiver/config.json says who this node is, where the model goes, and which node follows. What is there
already and right is not asked for, wherever it came from.
"""

import fcntl
import itertools
import json
import os
import queue
import shutil
import sys
import threading
import time

from model_files import RESERVE, Seen, bytes_now, hashes, present, remove_former, sha256_of, size, write_manifest
from model_hop import ALIVE_SECONDS, DRAFTS, PARTIAL, Failed, Hop

# Of a sender that says nothing any more nobody can tell whether it lives.
SILENCE_SECONDS = 4 * ALIVE_SECONDS
POLL_SECONDS = 0.1
LOOKED_FOR = 100
PROGRESS_SECONDS = 1

speaking = threading.Lock()


def tell(**message):
    with speaking:
        print(json.dumps(message), flush=True)


class Sender(threading.Thread):
    """The node before. When it is gone, or silent for long, this program ends at once."""

    def __init__(self):
        super().__init__(daemon=True)
        self.manifest = json.loads(sys.stdin.readline())
        self.heard = time.monotonic()
        self.started = []
        self.sent = queue.SimpleQueue()
        self.start()
        threading.Thread(target=self._watch, daemon=True).start()

    def run(self):
        for line in sys.stdin:
            self.heard = time.monotonic()
            if line.strip():
                self.sent.put(json.loads(line))
        self._end()

    def _watch(self):
        while time.monotonic() - self.heard < SILENCE_SECONDS:
            time.sleep(1)
        self._end()

    def _end(self):
        for hop in self.started:
            hop.stop()
        os._exit(1)


def alone(keep, node):
    """Waits for the end of an earlier run, whose connection may be gone while it has not noticed yet."""
    lock = open(os.path.join(keep, "receiver", "lock"), "w", encoding="ascii")
    end = time.monotonic() + SILENCE_SECONDS + 20
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > end:
                raise Failed(f"{node}: another run receives the model here: wait for its end") from None
            time.sleep(POLL_SECONDS)


def lacking(node, folder, seen, files):
    """Names of the files that are not there, or not right."""
    entries = present(folder)
    alike = [name for name, file in files.items() if name in entries and entries[name].st_size == file["bytes"]]
    found = hashes(folder, alike, seen, f"{node} reads the model that is there")
    return [name for name, file in files.items() if found.get(name) != file["sha256"]]


def room_for(node, folder, needed):
    free = shutil.disk_usage(folder).free
    if needed and needed + RESERVE > free:
        raise Failed(
            f"{node}: the disk of {folder} has {size(free)} free, {size(needed + RESERVE)} are needed for the model "
            f"({size(RESERVE)} of it are left free): make room"
        )


class Arrivals:
    """Files that are to come. One that has another inode or other times than before is whole: rsync moves it into place."""

    def __init__(self, folder, seen, files, wanted):
        self.folder, self.seen, self.files = folder, seen, files
        self.before = {name: self._mark(name) for name in wanted}
        self.total = sum(files[name]["bytes"] for name in wanted)
        self.right = 0
        # Those that were looked at, and nobody said yet that they were sent.
        self.came = set()

    def _mark(self, name):
        try:
            entry = os.stat(os.path.join(self.folder, name))
            return entry.st_ino, entry.st_mtime_ns, entry.st_ctime_ns
        except FileNotFoundError:
            return None

    def look(self, sent):
        """Name of each file that came, and whether it is right. They come in this order, or else were `sent`: not all are looked for."""
        for name in [*itertools.islice(list(self.before), LOOKED_FOR), *sent]:
            if name not in self.before:
                continue
            before = self.before[name]
            mark = self._mark(name)
            if mark is None or mark == before:
                continue
            path = os.path.join(self.folder, name)
            entry, sha256 = os.stat(path), sha256_of(path)
            self.before[name] = mark
            self.came.add(name)
            is_right = sha256 == self.files[name]["sha256"]
            if is_right:
                del self.before[name]
                self.right += entry.st_size
                self.seen.note(name, entry, sha256)
            yield name, is_right

    def lost(self, sent):
        """Of the files that were sent those that did not come. One that is right is not lost: two copies of it may end in any order."""
        lost = (set(sent) - self.came) & self.before.keys()
        self.came -= set(sent)
        return lost

    def bytes(self):
        """Bytes that came, also of what is on its way."""
        return min(self.total, self.right + bytes_now(os.scandir(os.path.join(self.folder, DRAFTS))))


def receive(keep, config, sender):
    """Bytes and seconds of this node and those behind, by name."""
    node, folder = config["node"], config["path"]
    files = sender.manifest["files"]
    if not shutil.which("rsync"):
        raise Failed(f"{node}: rsync is missing: sudo apt install rsync")
    os.makedirs(folder, exist_ok=True)
    # What a run that was killed left.
    shutil.rmtree(os.path.join(folder, DRAFTS), ignore_errors=True)
    seen = Seen(keep)
    remove_former(folder, keep, files, seen)
    hop = Hop(node, folder, keep, sender.manifest, config["next"]) if config["next"] else None
    if hop:
        # What it lacks is found out meanwhile.
        sender.started.append(hop)
        hop.start()
    wanted = lacking(node, folder, seen, files)
    needed = sum(files[name]["bytes"] for name in wanted)
    room_for(node, folder, needed)
    os.mkdir(os.path.join(folder, DRAFTS))
    write_manifest(folder, keep, sender.manifest)
    if hop:
        hop.offer(set(files) - set(wanted))
    began = told = time.monotonic()
    arrivals = Arrivals(folder, seen, files, wanted)
    tell(wanted=wanted)
    seconds = 0
    while arrivals.before or (hop and hop.is_alive()):
        sent = [] if sender.sent.empty() else sender.sent.get()
        for name, is_right in arrivals.look(sent):
            tell(**{"right" if is_right else "wrong": name})
            if is_right and hop:
                hop.offer([name])
            seconds = time.monotonic() - began
        for name in arrivals.lost(sent):
            tell(wrong=name)
        if hop and hop.failure:
            break
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            behind = hop.progress if hop else {}
            tell(progress={node: [arrivals.bytes(), needed], **behind})
        time.sleep(POLL_SECONDS)
    shutil.rmtree(os.path.join(folder, DRAFTS), ignore_errors=True)
    for place in {os.path.join(folder, os.path.dirname(name)) for name in files}:
        shutil.rmtree(os.path.join(place, PARTIAL), ignore_errors=True)
    return {node: {"bytes": needed, "seconds": round(seconds, 3)}, **(hop.result() if hop else {})}


def main(keep):
    with open(os.path.join(keep, "receiver", "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    sender = Sender()
    try:
        lock = alone(keep, config["node"])
        with lock:
            tell(done=receive(keep, config, sender))
    except Failed as failure:
        tell(failed=str(failure))
    except OSError as error:
        tell(failed=f"{config['node']}: {error}")


main(*sys.argv[1:])

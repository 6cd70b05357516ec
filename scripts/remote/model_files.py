"""What a model's folder holds, and what is known of it. The deployment's folder on this node keeps

- model.json: the manifest, what the folder PATH has to hold: `{"path": PATH, "source": {...}, "files": {NAME: {...}}}`, of each
  file its `bytes` and `sha256`
- model-seen.jsonl: a line for each file that was read and hashed: its name, its hash, and what `stat` said of it then

A file whose size, times and inode are as they were then is as it was: nothing is hashed twice.
Names are relative to the model's folder. Hidden files and folders are no part of a model: tools keep their own things there.
"""

import concurrent.futures
import hashlib
import json
import os
import stat
import sys
import threading
import time

from files import write_whole

PROGRESS_SECONDS = 5
# Left free on a disk, bytes: a full one stops more than this.
RESERVE = 10**9


def say(text):
    print(text, file=sys.stderr, flush=True)


def present(folder):
    """What `stat` says of each file of the model, by name. Links are followed, as a copy does: a hub's cache consists of them. What is
    neither file nor folder is no part of a model. An OSError where it can't be told: what can't be listed is no empty folder."""
    found = {}

    def look(below, above):
        place = os.path.join(folder, below)
        here = os.path.realpath(place)
        for name in os.listdir(place) if here not in above else []:  # A link that leads back has nothing new.
            if name.startswith("."):
                continue
            inner = os.path.join(below, name)
            try:
                entry = os.stat(os.path.join(folder, inner))
            except FileNotFoundError:
                continue  # A link that leads nowhere, or gone since.
            if stat.S_ISDIR(entry.st_mode):
                look(inner, above | {here})
            elif stat.S_ISREG(entry.st_mode):
                found[inner] = entry

    if os.path.isdir(folder):
        look("", frozenset())
    return found


def sha256_of(path, counted=lambda count: None):
    """The hash of a file's bytes. `counted` is told of each piece that was read."""
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        piece = memoryview(bytearray(min(1 << 20, os.fstat(file.fileno()).st_size + 1)))
        while count := file.readinto(piece):
            found.update(piece[:count])
            counted(count)
    return found.hexdigest()


def digest_of(files):
    """One hash of a manifest's files, by which two models are told apart."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def read_manifest(keep):
    """The manifest; None where there is none, or it can't be used."""
    try:
        with open(os.path.join(keep, "model.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        return manifest if isinstance(manifest["files"], dict) else None
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None


def write_manifest(folder, keep, manifest):
    # The path may be another than where the manifest comes from.
    write_whole(os.path.join(keep, "model.json"), json.dumps({**manifest, "path": os.path.normpath(folder)}))


def remove_former(folder, keep, files, seen):
    """Removes what the manifest in `keep` has and `files` has not, or an engine might load it; whether there was any. What somebody
    changed is theirs."""
    former, there = read_manifest(keep), present(folder)
    if former is None or former.get("path") != os.path.normpath(folder):
        return False
    gone = [
        name
        for name, told in former["files"].items()
        if name not in files and name in there and seen.hash_of(name, there[name]) == told["sha256"]
    ]
    for name in gone:
        os.remove(os.path.join(folder, name))
    return bool(gone)


def _mark(entry):
    return [entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns, entry.st_ino]


class Seen:
    """What was hashed on this node. Safe for several threads."""

    def __init__(self, keep):
        self.path, self.known, self.lock = os.path.join(keep, "model-seen.jsonl"), {}, threading.Lock()
        lines = []
        try:
            with open(self.path, encoding="utf-8") as file:
                lines = file.readlines()
        except FileNotFoundError:
            pass
        for line in lines:
            try:
                name, sha256, mark = json.loads(line)
                self.known[name] = (sha256, mark)
            except (ValueError, TypeError):
                pass  # Its writer was killed in the middle of it.
        # Without what later lines replaced.
        write_whole(self.path, "".join(json.dumps([name, *rest]) + "\n" for name, rest in self.known.items()))

    def hash_of(self, name, entry):
        """The hash of a file that is as it was when it was read; None: it has to be read."""
        sha256, mark = self.known.get(name, (None, None))
        return sha256 if mark == _mark(entry) else None

    def note(self, name, entry, sha256):
        """Remembers a file's hash. `entry` is from before it was read: what changed meanwhile is read again."""
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            self.known[name] = (sha256, _mark(entry))
            file.write(json.dumps([name, sha256, _mark(entry)]) + "\n")


class Progress:
    """A line every few seconds: what, how much of how much, how fast, how long it still takes. `done` was done before."""

    def __init__(self, what, total, done=0):
        self.what, self.total, self.done = what, total, done
        self.told = time.monotonic()
        self.first = None
        self.lock = threading.Lock()

    def add(self, count):
        with self.lock:
            self.at(self.done + count)

    def at(self, done):
        now = time.monotonic()
        if self.first is None and done != self.done:
            self.first = (done, now)  # The wait before the first bytes says nothing about the rate.
        self.done = done
        if now - self.told >= PROGRESS_SECONDS:
            self.told = now
            say(f"{self.what}: {size(done)} of {size(self.total)}{self.pace(now)}")

    def pace(self, now):
        done, began = self.first or (self.done, now)
        if self.done <= done or now <= began:
            return ""
        rate = (self.done - done) / (now - began)
        return f", {size(rate)}/s, {max(0, self.total - self.done) / rate:.0f} s left"


def size(count):
    """Bytes for people, in the units of disks and links."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        units.pop(0)
    return f"{count:.1f} {units[0]}"


def bytes_now(paths):
    """Bytes of files that others write, and may move away meanwhile."""
    total = 0
    for path in paths:
        try:
            total += os.stat(path).st_size
        except FileNotFoundError:
            pass  # It is in place by now.
    return total


def hashes(folder, names, seen, what):
    """The hash of each of these files, by name; those that are known are not read. Several files at once, for the disk's sake."""
    entries = {name: os.stat(os.path.join(folder, name)) for name in names}
    found = {name: seen.hash_of(name, entry) for name, entry in entries.items()}
    unread = [name for name, sha256 in found.items() if sha256 is None]
    progress = Progress(what, sum(entries[name].st_size for name in unread))

    def read(name):
        found[name] = sha256_of(os.path.join(folder, name), progress.add)
        seen.note(name, entries[name], found[name])

    with concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        list(pool.map(read, unread))
    return found

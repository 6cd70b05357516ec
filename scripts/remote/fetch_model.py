"""Brings a model from a Hugging Face hub to the head: fetch_model.py DEPLOYMENT PATH KEEP REPOSITORY REVISION ENDPOINT

The client in the image SERVING_IMAGE downloads what PATH lacks of REPOSITORY at REVISION: a file whose bytes are there, wherever they
came from, stays. ENDPOINT is the hub's address, empty for the client's own. SERVING_IMAGE and HF_TOKEN come by the environment. KEEP is the
deployment's folder on this node, which gets the manifest; see model_files.py. Every file is held against the hash that the hub
tells of it. Files of the former manifest that the model no longer has are removed, unless somebody changed them.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

from containers import docker, fail
from files import text_of
from model_files import (
    RESERVE,
    Progress,
    Seen,
    bytes_now,
    digest_of,
    hashes,
    present,
    read_manifest,
    remove_former,
    say,
    size,
    write_manifest,
)

# An earlier download ends with its reader, but not at once.
ENDING_SECONDS = 15
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
SET_TOKEN = "pulumi config set --secret huggingFaceToken TOKEN"


def problem_of(kind, message, source):
    """What the download's error means here, and its cure."""
    place, repository, revision, endpoint = source["place"], source["repository"], source["revision"], source["endpoint"]
    hub = endpoint or "the hub"
    if kind == "token" and os.environ.get("HF_TOKEN"):
        return f"{place}: {hub} refused the token ({message})\n  mend: {SET_TOKEN}, with one that may read {repository}"
    if kind == "token":
        return (
            f"{place}: {hub} wants a token ({message}): the repository is private, or gated, or is not there\n"
            f"  mend: look at the name, or {SET_TOKEN}, with one that may read it"
        )
    cures = {
        "gated": (
            f"{hub} does not hand it to this token's account ({message})",
            f"accept the licence on the model's page of the hub with the account of huggingFaceToken, wait for approval, and\n"
            f"        {SET_TOKEN}, with one that may read gated repositories",
        ),
        "repository": (
            f"{hub} has no such repository, or hides it from this token ({message})",
            f"pulumi config set --path model.source.repository OWNER/NAME, or {SET_TOKEN}, if it is private",
        ),
        "revision": (
            f"{hub} has no revision {revision} of it ({message})",
            "pulumi config set --path model.source.revision COMMIT, one that the hub's page of the model lists",
        ),
        "endpoint": (
            f"{hub} gives this node no usable answer ({message})",
            "look at the node's DNS, route and proxy (HTTPS_PROXY in its environment), and at model.source.endpoint;\n"
            "        then pulumi up again: what is here already stays",
        ),
        "disk": (f"the client can't write to {source['path']} ({message})", "make room there, or give this user the folder"),
        "client": (
            f"image {source['image']} has no usable huggingface_hub ({message})",
            "use an image with it, or copy the model to model.path by hand",
        ),
    }
    what, cure = cures.get(kind, (f"the download failed ({message})", "look at the lines above; then pulumi up again"))
    return f"{place}: {what}\n  mend: {cure}"


class Client:
    """The hub's client in a container of its own. It ends when its stdin does: with this program, however that ends."""

    def __init__(self, source):
        self.source = source
        path = source["path"]
        # One a folder, so that no two write to it.
        name = f"dgx-spark-fetch-{hashlib.sha256(path.encode()).hexdigest()[:12]}"
        remove_ended(name, source["place"])
        # As `docker` reads it: fields of a CSV line, which may have blanks and commas in quotes.
        quoted = path.replace('"', '""')
        # A name without a value is taken from this environment: the token is in no command line.
        names = [name for name in ("HF_TOKEN", *PROXIES) if os.environ.get(name)]
        endpoint = ["--env", f"HF_ENDPOINT={source['endpoint']}"] if source["endpoint"] else []
        self.process = subprocess.Popen(
            [
                *("docker", "run", "--rm", "--interactive", "--pull", "never"),
                *("--name", name, "--label", f"dgx-spark-serving.deployment={source['deployment']}"),
                *("--network", "host", "--user", f"{os.getuid()}:{os.getgid()}"),
                *(word for group in os.getgroups() for word in ("--group-add", str(group))),
                *(word for name in names for word in ("--env", name)),
                *endpoint,
                *("--mount", f'type=bind,"source={quoted}","target={quoted}"', "--entrypoint", "python3", source["image"]),
                *("-c", text_of("hub_download.py"), source["repository"], source["revision"], path),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def answer(self):
        """Its next line. Its errors end the step."""
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            fail(f"{self.source['place']}: the client in image {self.source['image']} ended (exit code {code}), its words are above")
        answer = json.loads(line)
        if "error" in answer:
            fail(problem_of(answer["error"], answer["message"], self.source))
        return answer

    def download(self, names):
        """Names of the files, each when it was downloaded."""
        try:
            self.process.stdin.write(json.dumps(names) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It is gone: so says its answer.
        while "file" in (answer := self.answer()):
            yield answer["file"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def remove_ended(name, place):
    """Removes the container of an earlier download that was killed, once it has ended."""
    end = time.monotonic() + ENDING_SECONDS
    while True:
        # Without --force, which would end another deployment's.
        done = docker("rm", name)
        if done.returncode == 0 or "no such container" in done.stderr.lower():
            return
        if time.monotonic() > end:
            fail(f"{place}: another download to this folder goes on, or can't be removed: {done.stderr.strip()}")
        time.sleep(0.5)


def make_folder(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        fail(f"model.path {path}: can't be made: {error.strerror}\n  mend: sudo install -d -o {user()} {path}")
    if not os.access(path, os.W_OK | os.X_OK):
        fail(f"model.path {path}: {user()} can't write there\n  mend: sudo chown {user()} {path}")


def user():
    return os.environ.get("USER", str(os.getuid()))


def git_hash_of(path):
    """The hash that git gives a file. Only small ones are known by it."""
    with open(path, "rb") as file:
        content = file.read()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Model:
    """The model's folder against what the hub tells of its files."""

    def __init__(self, path, keep, wanted):
        self.path, self.wanted, self.seen = path, wanted, Seen(keep)
        self.sha256 = {}

    def right(self, names, what):
        """Those of the files that have the hub's bytes; their hashes are remembered."""
        there = present(self.path)
        sized = [name for name in names if name in there and there[name].st_size == self.wanted[name]["bytes"]]
        found = hashes(self.path, sized, self.seen, what)
        good = [name for name in sized if self.is_right(name, found[name])]
        self.sha256.update((name, found[name]) for name in good)
        return good

    def is_right(self, name, sha256):
        told = self.wanted[name]
        if told["sha256"]:
            return sha256 == told["sha256"]
        return git_hash_of(os.path.join(self.path, name)) == told["git"]

    def bytes_of(self, names):
        return sum(self.wanted[name]["bytes"] for name in names)


def require_room(model, names, place):
    """Ends the step when the files don't fit, before any is downloaded."""
    disk = os.statvfs(model.path)
    free, needed = disk.f_bavail * disk.f_frsize, model.bytes_of(names) + RESERVE
    if names and free < needed:
        fail(
            f"{place}: {len(names)} files of {size(needed - RESERVE)} are to come, and {size(RESERVE)} stay free: "
            f"{size(needed)} are needed, {size(free)} are free on the disk of {model.path}\n"
            "  mend: make room there, or set model.path to a folder on a larger disk"
        )


def coming(path):
    """Bytes of the file that is being downloaded, as far as it is there."""
    parts = (os.path.join(place, name) for place, _, names in os.walk(f"{path}/.cache/huggingface") for name in names)
    return bytes_now(part for part in parts if part.endswith(".incomplete"))


def download(client, model, names):
    """Downloads files, and removes those that came with other bytes than the hub tells; their names."""
    wrong, done = [], [0]
    progress = Progress("download", model.bytes_of(names))
    ended = threading.Event()

    def look():
        while not ended.wait(1):
            progress.at(done[0] + coming(model.path))

    threading.Thread(target=look, daemon=True).start()
    # Each is hashed while the next one comes.
    for name in client.download(names):
        done[0] += model.wanted[name]["bytes"]
        if not model.right([name], f"hash of {name}"):
            pathlib.Path(model.path, name).unlink(missing_ok=True)
            wrong.append(name)
    ended.set()
    return wrong


def remove_parts(path):
    """Removes parts of files that a killed download left and no other takes up: those that the client gave a name of their own."""
    for place, _, names in os.walk(f"{path}/.cache/huggingface"):
        for name in names:
            if re.search(r"\.[0-9a-f]{8}\.incomplete$", name):
                os.remove(os.path.join(place, name))


def remove_leftovers(path):
    """The client's own files, and their folder unless somebody else uses it."""
    shutil.rmtree(os.path.join(path, ".cache/huggingface"), ignore_errors=True)
    try:
        os.rmdir(os.path.join(path, ".cache"))
    except OSError:
        pass


def main(deployment, path, keep, repository, revision, endpoint):
    began = time.monotonic()
    path, place = os.path.normpath(path), f"model.source.repository {repository}"
    source = {
        **{"place": place, "image": os.environ["SERVING_IMAGE"], "deployment": deployment, "path": path},
        **{"repository": repository, "revision": revision, "endpoint": endpoint},
    }
    make_folder(path)
    client = Client(source)
    hub = client.answer()
    model = Model(path, keep, hub["files"])
    if not hub["files"] or any(each["bytes"] is None for each in hub["files"].values()):
        fail(f"{place}: {endpoint or 'the hub'} lists no files of it, or not their sizes\n  mend: look at the repository's page")
    have = model.right(hub["files"], "hashes of what is there")
    missing = sorted(set(hub["files"]) - set(have))
    remove_parts(path)
    require_room(model, missing, place)
    say(f"{repository} at {hub['commit']}: {len(missing)} of {len(hub['files'])} files are to come, {size(model.bytes_of(missing))}")
    fetched = list(missing)
    wrong = download(client, model, missing)
    if wrong:
        say(f"{', '.join(wrong)}: came with other bytes than the hub tells; once more")
        fetched += wrong
        wrong = download(client, model, wrong)
    client.end()
    if wrong:
        fail(
            f"{place}: {', '.join(wrong)} came with other bytes than the hub says twice, and was removed\n"
            "  mend: look at the proxy or mirror on the way to the hub (model.source.endpoint); then pulumi up again"
        )
    files = {name: {"bytes": hub["files"][name]["bytes"], "sha256": model.sha256[name]} for name in sorted(hub["files"])}
    former = read_manifest(keep)
    # What was there before anything was fetched is no copy: it may be nowhere else.
    ours = former is not None and former.get("source", {}).get("kind") == "hub"
    removed = ours and remove_former(path, keep, files, model.seen)
    remove_leftovers(path)
    kept = {"kind": "hub", "repository": repository, "commit": hub["commit"], "endpoint": endpoint or None}
    manifest = {"source": kept, "files": files}
    same = former is not None and former == {**manifest, "path": path}
    if not same:
        write_manifest(path, keep, manifest)
    return {
        "changed": bool(fetched or removed or not same),
        "digest": digest_of(files),
        "files": len(files),
        "bytes": model.bytes_of(files),
        "fetchedBytes": model.bytes_of(fetched),
        "seconds": round(time.monotonic() - began, 1),
        "commit": hub["commit"],
    }


try:
    print(json.dumps(main(*sys.argv[1:])))
except OSError as error:
    fail(f"model.path {sys.argv[2]}: {error}")

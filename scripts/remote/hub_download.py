"""Downloads files of a model from a Hugging Face hub, inside the serving image: hub_download.py REPOSITORY REVISION FOLDER

First it prints what the hub has at the revision, one JSON line:
`{"commit": HASH, "files": {NAME: {"bytes": N, "sha256": HEX or null, "git": HEX or null}}}`. The hub knows the sha256 of large
files, and of the others the hash that git gives them. Then each line of stdin is a JSON list of names: those are downloaded to
FOLDER one after the other, so that whoever kills this loses one file at most. A line `{"file": NAME}` tells of each that is
there, and `{"done": true}` of the end. Whether they have the right bytes is for the reader to see: the client does not look.

What can't be mended by trying again ends it with exit code 1 and a line `{"error": KIND, "message": TEXT}`. KIND is token,
gated, repository, revision, endpoint (no answer, or no hub's), disk, client (the image lacks it), or other. HF_TOKEN and
HF_ENDPOINT are the client's own. The end of stdin is the end of whoever wanted this: it ends at once then.
"""

import errno
import json
import os
import queue
import re
import sys
import threading
import time

# A file is tried this often in a row; the first waits, seconds, double each time.
TRIES, FIRST_WAIT = 6, 1
ANSWER_SECONDS = 30
REFUSED = {401: "token", 403: "gated", 404: "repository"}
# By the names that all versions of the client have.
ERRORS = {
    "GatedRepoError": "gated",
    "RevisionNotFoundError": "revision",
    "RemoteEntryNotFoundError": "other",
    "JSONDecodeError": "endpoint",
}
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)

lines = queue.Queue()


def read():
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


def without_token(text):
    """A client's words, which may repeat what it was given."""
    token = os.environ.get("HF_TOKEN", "").strip()
    return text.replace(token, "(token)") if token else text


def say(text):
    print(without_token(text), file=sys.stderr, flush=True)


def tell(answer):
    print(json.dumps(answer), flush=True)


def with_causes(error):
    """An error and those that led to it."""
    found = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def status_of(error):
    """The status of the answer that an error is about, and the answer; None, None without one."""
    for each in with_causes(error):
        answer = getattr(each, "response", None)
        if answer is not None:
            return answer.status_code, answer
    return None, None


def lasting(error):
    """The kind of an error that stays however often it is tried; None: the next try may succeed."""
    for each in with_causes(error):
        if type(each).__name__ in ERRORS:
            return ERRORS[type(each).__name__]
    status, _ = status_of(error)
    if status is not None:
        return REFUSED.get(status)
    if any(isinstance(each, OSError) and each.errno in DISK for each in with_causes(error)):
        return "disk"
    # The client's own, of what it was asked for.
    return "other" if isinstance(error, (ValueError, TypeError)) and len(with_causes(error)) == 1 else None


def reason(error):
    """What went wrong, in one line."""
    status, _ = status_of(error)
    first = with_causes(error)[-1]
    words = " ".join(str(first).split())
    if status is not None:
        return f"status {status}"
    return f"{type(first).__name__}: {words}" if words else type(first).__name__


def asked_wait(error):
    """How long the hub wants to be left alone, seconds; 0 where it does not say."""
    _, answer = status_of(error)
    said = {} if answer is None else answer.headers
    after = said.get("retry-after", "")
    # The hub's own way: "api";r=0;t=55
    reset = re.search(r";\s*r=0\s*;\s*t=(\d+)", said.get("ratelimit", ""))
    return int(after) if after.isdigit() else int(reset[1]) if reset else 0


def until_done(what, attempt):
    """The attempt's result; it is tried again after what may pass."""
    wait = FIRST_WAIT
    for number in range(2, TRIES + 2):
        try:
            return attempt()
        except Exception as error:
            if number > TRIES or lasting(error):
                raise
            pause = max(wait, asked_wait(error))
            say(f"{what}: {reason(error)}; try {number} of {TRIES} in {pause} s")
        time.sleep(pause)
        wait *= 2


def is_shown(name):
    """Whether it is part of the model: hidden files are not, nor are names that lead out of the folder."""
    return all(part and not part.startswith(".") for part in name.split("/"))


def listing(repository, revision):
    """The commit that a revision stands for, and its files."""
    info = HfApi().model_info(repository, revision=revision, files_metadata=True, timeout=ANSWER_SECONDS)
    files = {
        file.rfilename: {
            "bytes": file.size,
            "sha256": file.lfs.sha256 if file.lfs else None,
            "git": None if file.lfs else file.blob_id,
        }
        for file in info.siblings
        if is_shown(file.rfilename)
    }
    return {"commit": info.sha, "files": files}


def download(repository, commit, name, folder):
    # Without force the client takes what is there, right or wrong; with it nothing is resumed.
    there = os.path.lexists(os.path.join(folder, name))
    hf_hub_download(repository, name, revision=commit, local_dir=folder, force_download=there)


def serve(repository, revision, folder):
    found = until_done("list of files", lambda: listing(repository, revision))
    tell(found)
    while True:
        for name in json.loads(lines.get()):
            until_done(name, lambda: download(repository, found["commit"], name, folder))
            tell({"file": name})
        tell({"done": True})


repository, revision, folder = sys.argv[1:]
threading.Thread(target=read, daemon=True).start()
os.environ.update(
    # What the client keeps for itself goes with its other leftovers.
    HF_HOME=os.path.join(folder, ".cache/huggingface/home"),
    HF_XET_CHUNK_CACHE_SIZE_BYTES="0",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_HUB_DISABLE_TELEMETRY="1",
)
# An image that is kept from the hub for serving.
os.environ.pop("HF_HUB_OFFLINE", None)
try:
    from huggingface_hub import HfApi, hf_hub_download

    serve(repository, revision, folder)
except ImportError as error:
    tell({"error": "client", "message": str(error)})
except Exception as error:
    status, _ = status_of(error)
    kind = lasting(error) or ("endpoint" if status is None or status in (408, 429) or status >= 500 else "other")
    tell({"error": kind, "message": without_token(reason(error))})
sys.exit(1)

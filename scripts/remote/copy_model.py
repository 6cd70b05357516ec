"""Brings a model from the head to all other nodes over the fabric: copy_model.py NODE PATH KEEP CHAIN_JSON

A chain, each node sending to the next while it still receives, so that more nodes take hardly longer than one. KEEP holds the
manifest of what is in PATH (model_files.py). CHAIN has the others in their order: name, address, port, user, hostKey. Only the
first is sent to from here, and each of them knows its next.
"""

import json
import shutil
import sys

from model_files import Progress, Seen, hashes, present, read_manifest, say, size
from model_hop import Failed, Hop


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def changed_since(path, files, seen):
    """Names of files that are not as the manifest has them."""
    found = hashes(path, files.keys() & present(path).keys(), seen, "reading the model again")
    return sorted(name for name, file in files.items() if found.get(name) != file["sha256"])


def follow(hop):
    """Tells how far the nodes are until the end."""
    progress = Progress("model", 0)
    while hop.is_alive():
        hop.join(1)
        nodes = dict(hop.progress)
        progress.total = sum(total for _, total in nodes.values())
        each = ", ".join(f"{name} {size(done)} of {size(total)}" for name, (done, total) in nodes.items())
        progress.what = f"model to {each}; together"
        progress.at(sum(done for done, _ in nodes.values()))


def main(node, path, keep, chain):
    manifest = read_manifest(keep)
    if manifest is None:
        fail(f"model.path {path}: what it should hold is not known any more: pulumi up --replace '**model-*'")
    if not shutil.which("rsync"):
        fail("rsync is missing on the head: sudo apt install rsync")
    files = manifest["files"]
    try:
        if changed := changed_since(path, files, Seen(keep)):
            fail(
                f"model.path {path}: changed since it was read: {', '.join(changed[:5])}"
                f"{f' and {len(changed) - 5} more' if len(changed) > 5 else ''}: pulumi up --replace '**model-*'"
            )
        hop = Hop(node, path, keep, manifest, json.loads(chain)[0])
        hop.offer(files)
        hop.start()
        follow(hop)
        nodes = hop.result()
    except (Failed, OSError) as error:
        fail(error)
    for name, copied in nodes.items():
        if copied["bytes"]:
            say(f"{name}: {size(copied['bytes'])} in {copied['seconds']:.0f} s")
    print(json.dumps({"changed": any(copied["bytes"] for copied in nodes.values()), "nodes": nodes}))


main(*sys.argv[1:])

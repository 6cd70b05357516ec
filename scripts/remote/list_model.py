"""Reads a model that is on the head already, once, so that copies can be held against it: list_model.py PATH KEEP"""

import json
import os
import sys

from model_files import Seen, digest_of, hashes, present, write_manifest


def main(path, keep):
    try:
        # What can't be listed is no empty model.
        os.listdir(path)
        entries = present(path)
        found = hashes(path, entries, Seen(keep), "reading the model")
    except OSError as error:
        print(f"model.path {path}: {error}", file=sys.stderr)
        sys.exit(1)
    files = {name: {"bytes": entry.st_size, "sha256": found[name]} for name, entry in sorted(entries.items())}
    write_manifest(path, keep, {"source": {"kind": "path"}, "files": files})
    total = sum(file["bytes"] for file in files.values())
    print(json.dumps({"changed": False, "files": len(files), "bytes": total, "digest": digest_of(files)}))


main(*sys.argv[1:])

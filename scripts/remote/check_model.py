"""Checks that a model's folder is whole and readable: check_model.py PATH"""

import json
import os
import sys

folder = sys.argv[1]


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def missing_shards(names):
    """Weight files that the index names and the folder lacks."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index):
        return []
    with open(index, encoding="utf-8") as file:
        return sorted(set(json.load(file)["weight_map"].values()) - set(names))


try:
    names = os.listdir(folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        json.load(file)
    missing = missing_shards(names)
    weights = [name for name in names if name.endswith((".safetensors", ".bin", ".gguf"))]
    # Opened, not only listed: a link may lead nowhere, and permissions may forbid it.
    for name in weights:
        with open(os.path.join(folder, name), "rb") as file:
            file.read(1)
    total = sum(os.path.getsize(os.path.join(folder, name)) for name in weights)
except FileNotFoundError as error:
    fail(f"model.path {folder}: {error.filename} is not there; the model must be in this folder on every node")
except PermissionError as error:
    fail(f"model.path {folder}: {error.filename} can't be read by {os.environ.get('USER', 'this user')}")
except (OSError, ValueError, KeyError) as error:
    fail(f"model.path {folder}: {error}")
if missing:
    fail(f"model.path {folder}: {len(missing)} weight files that the index names are missing, first {missing[0]}")
if total == 0:
    fail(f"model.path {folder}: no weights (*.safetensors, *.bin, *.gguf)")
print(json.dumps({"changed": False, "files": len(weights), "bytes": total}))

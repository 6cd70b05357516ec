"""Checks that a model's folder is whole and readable: check_model.py PATH"""

import fnmatch
import hashlib
import json
import os
import re
import sys

# Other files end like weights and are none: training_args.bin, optimizer.bin.
WEIGHTS = ("*.safetensors", "*.gguf", "pytorch_model*.bin", "consolidated*.pth")
# What is loaded beside them: configuration, tokenizer, chat template.
BESIDE = ("*.json", "*.jinja", "*.tiktoken", "tokenizer.model")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")

folder = sys.argv[1]


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def matching(patterns):
    """The names that fit one of the patterns."""
    return {name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)}


def check_safetensors(name, file, size):
    """Holds a file's size against its header, which says where each tensor ends. The tensors themselves are not read."""
    length = int.from_bytes(file.read(8), "little")
    end = 8 + length
    try:
        # More than this the format does not allow: then it is no length.
        if length > 100_000_000:
            raise ValueError
        if end <= size:
            tensors = {key: value for key, value in json.loads(file.read(length)).items() if key != "__metadata__"}
            end += max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    except (ValueError, TypeError, AttributeError, LookupError):
        fail(f"model.path {folder}: {name} is not whole: its header is broken; copy it again")
    if size != end:
        fail(f"model.path {folder}: {name} is not whole: {size} of {end} bytes; copy it again")


def indexed(index):
    """Weight files that an index names; none without the index."""
    if index not in names:
        return set()
    with open(os.path.join(folder, index), encoding="utf-8") as file:
        content = json.load(file)
    shards = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict) or not shards or not all(isinstance(shard, str) for shard in shards.values()):
        fail(f"model.path {folder}: {index} has no weight_map that names a file for each tensor")
    return set(shards.values())


def siblings(name):
    """All parts of the model of which this file is one: name-00002-of-00003.gguf. GGUF has no index."""
    part = re.fullmatch(r"(.+-)(\d{5})(-of-(\d{5})\.gguf)", name)
    if not part:
        return set()
    before, _, after, count = part.groups()
    return {f"{before}{each:05}{after}" for each in range(1, int(count) + 1)}


try:
    names = set(os.listdir(folder))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        json.load(file)
    weights = matching(WEIGHTS)
    safetensors, pickled = map(indexed, INDEXES)
    # vLLM prefers safetensors: a download without the .bin files leaves an index of them that does not matter.
    if any(name.endswith(".safetensors") for name in names) and not pickled & names:
        pickled = set()
    wanted = weights | safetensors | pickled | {part for name in weights for part in siblings(name)}
    missing = sorted(name for name in wanted if not os.path.lexists(os.path.join(folder, name)))
    # Opened, not only listed: a link may lead nowhere, and permissions may forbid it.
    present = sorted(wanted - set(missing))
    for name in present:
        with open(os.path.join(folder, name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                fail(f"model.path {folder}: {name} is empty; copy it again")
            if name.endswith(".safetensors"):
                check_safetensors(name, file, size)
    sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in {*present, *matching(BESIDE)}}
except FileNotFoundError as error:
    fail(f"model.path {folder}: {error.filename} is not there; the model must be in this folder on every node")
except PermissionError as error:
    fail(f"model.path {folder}: {error.filename} can't be read by {os.environ.get('USER', 'this user')}")
except (OSError, ValueError) as error:
    fail(f"model.path {folder}: {error}")
if missing:
    fail(f"model.path {folder}: {len(missing)} weight files are missing, first {missing[0]}")
if not present:
    fail(f"model.path {folder}: no weights ({', '.join(WEIGHTS)})")
# Of names and sizes: cheap, and enough to tell another revision or an unfinished copy.
digest = hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()
print(json.dumps({"changed": False, "files": len(sizes), "bytes": sum(sizes.values()), "digest": digest}))

"""Says how a model is that this program brought here: brought_model.py PATH KEEP

Nothing is read but names, sizes and times. KEEP is the deployment's folder, where model_files.py notes what a file was like when
its bytes were read. Stands alone: preflight sends it by itself.
"""

import json
import os
import shutil
import sys


def lines_of(file):
    """What each line says; of one that was cut off in the middle nothing."""
    for line in file:
        try:
            yield json.loads(line)
        except ValueError:
            pass


def changed_files(folder, keep):
    """Names of files that are not as they were when they were read; none where nothing was brought."""
    try:
        with open(os.path.join(keep, "model.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        if manifest["path"] != os.path.normpath(folder):
            return []
        wanted, marks = manifest["files"], {}
        with open(os.path.join(keep, "model-seen.jsonl"), encoding="utf-8") as file:
            for name, sha256, mark in lines_of(file):
                marks[name] = (sha256, mark)
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return []
    changed = []
    for name, file in wanted.items():
        try:
            entry = os.stat(os.path.join(folder, name))
            mark = [entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns, entry.st_ino]
        except OSError:
            mark = None
        if marks.get(name) != (file["sha256"], mark):
            changed.append(name)
    return sorted(changed)


def main(folder, keep):
    print(json.dumps({"rsync": shutil.which("rsync") is not None, "changed": changed_files(folder, keep)}))


main(*sys.argv[1:])

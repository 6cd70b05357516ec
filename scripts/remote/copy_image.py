"""Streams an image from the head to a worker over the fabric, unless it is there, and compares the two: copy_image.py TAG KEEP WORKER

KEEP is the deployment's folder on this node, in which the key is. WORKER is JSON: name, address, port, user, hostKey. The other
end is receive-image.sh.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

from children import die_with_parent
from containers import fail, inspected
from fabric_ssh import ssh_config
from model_files import Progress, say, size
from signatures import explain, render

PIECE = 1 << 20
AGAIN = "pulumi up --replace '**image-*'"


def of_image(tag, form):
    if (said := inspected("image", tag, form)) is None:
        fail(f"image {tag} is not on the head any more. Bring it back: {AGAIN}")
    return said


def layers_there(ssh, tag, worker):
    """The image's layers on the worker, as Docker prints them."""
    done = subprocess.run([*ssh, f"layers {tag}"], stdout=subprocess.PIPE, encoding="utf-8")
    if done.returncode != 0:
        fail(
            f"can't reach {worker['name']} from the head over the fabric: {worker['user']}@{worker['address']}:{worker['port']}. "
            f"If a key or file of ours was changed by hand on either: {AGAIN}"
        )
    # Some users' shells say something first.
    return (done.stdout.strip().splitlines() or [""])[-1]


def send(ssh, tag, worker):
    """Sends the image; how many bytes that were. Docker tells only about how many there will be."""
    progress = Progress(f"image to {worker['name']}", int(of_image(tag, "{{.Size}}")))
    say(f"{progress.what}: about {size(progress.total)} over the fabric")
    with tempfile.TemporaryFile() as said:
        saved = subprocess.Popen(["docker", "save", tag], stdout=subprocess.PIPE, stderr=said, preexec_fn=die_with_parent)
        loaded = subprocess.Popen([*ssh, "load"], stdin=subprocess.PIPE, stdout=said, stderr=said, preexec_fn=die_with_parent)
        try:
            while piece := saved.stdout.read(PIECE):
                loaded.stdin.write(piece)
                progress.add(len(piece))
            loaded.stdin.flush()
            if saved.wait() == 0:
                say(f"{progress.what}: {size(progress.done)} sent, Docker unpacks it there")
            else:
                # Half an image must not look whole to the other end.
                loaded.kill()
        except BrokenPipeError:
            saved.kill()
        with contextlib.suppress(BrokenPipeError):
            loaded.stdin.close()
        if loaded.wait() != 0 or saved.wait() != 0:
            said.seek(0)
            text = said.read().decode("utf-8", "replace").strip()
            fail(f"{render(explain(text))}{text}\nthe image could not be copied to {worker['name']}: the last lines are above")
    return progress.done


def main(tag, keep, worker):
    worker = json.loads(worker)
    layers = of_image(tag, "{{json .RootFS.Layers}}")
    began, sent = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        ssh = ["ssh", "-F", ssh_config(place, os.path.join(keep, "fabric_ed25519"), worker), "next"]
        if layers_there(ssh, tag, worker) != layers:
            sent = send(ssh, tag, worker)
            if layers_there(ssh, tag, worker) != layers:
                fail(
                    f"the image on {worker['name']} is not the one that was sent: run this again, and look at the disk of "
                    f"{worker['name']}"
                )
    seconds = round(time.monotonic() - began, 1)
    if sent:
        say(f"image on {worker['name']}: {size(sent)} in {seconds:.0f} s")
    print(json.dumps({"changed": sent > 0, "bytes": sent, "seconds": seconds}))


main(*sys.argv[1:])

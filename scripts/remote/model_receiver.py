"""Lets the node before in the chain send the model to this one: model_receiver.py add KEEP FROM_ADDRESS PUBLIC_KEY CONFIG_JSON,
or model_receiver.py remove KEEP. What runs then, and where it may write, lies in KEEP. CONFIG is receive_model.py's.
"""

import json
import os
import subprocess
import sys

from files import HERE, text_of, write_whole

PROGRAMS = ("receive_model.py", "model_hop.py", "model_files.py", "fabric_ssh.py", "children.py", "files.py")
# A daemon for one connection, without a port: the one kind of rsync that is held to a folder.
DAEMON = """\
use chroot = no
log file = /dev/null
timeout = 60
[model]
path = {path}
read only = no
write only = yes
list = no
refuse options = delete
"""
# It would become nobody.
AS_ROOT = "uid = root\ngid = root\n"


def place(receiver, config):
    """Writes what runs when the node before sends; whether anything changed."""
    os.makedirs(receiver, 0o700, exist_ok=True)
    texts = {
        **{name: text_of(name) for name in PROGRAMS},
        "config.json": json.dumps(config),
        "rsyncd.conf": DAEMON.format(path=config["path"]) + (AS_ROOT if os.getuid() == 0 else ""),
    }
    changed = False
    for name, text in texts.items():
        path = os.path.join(receiver, name)
        try:
            with open(path, encoding="utf-8") as file:
                same = file.read() == text
        except FileNotFoundError:
            same = False
        if not same:
            write_whole(path, text)
            changed = True
    return changed


def main(action, keep, *more):
    changed, sender = False, more
    if action == "add":
        *sender, config = more
        changed = place(os.path.join(keep, "receiver"), json.loads(config))
    authorize = ["bash", os.path.join(HERE, "authorize-fabric-key.sh"), action, keep, "receive-model.sh", *sender]
    done = subprocess.run(authorize, stdout=subprocess.PIPE, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(done.returncode)
    print(json.dumps({"changed": changed or json.loads(done.stdout)["changed"]}))


main(*sys.argv[1:])

"""Just before a container is made: prepare_container.py CONTAINER DEPLOYMENT IMAGE SHARE BYTES [PORT...]

Removes what an interrupted run left under its name, if it is ours, and looks again at what the engine relies on, since
preflight was some time ago: IMAGE is there, PORTs are free, and SHARE of the memory, and at least BYTES, is available.
"""

import json
import os
import re
import subprocess
import sys
import time

from containers import docker, fail, inspected

# A GPU gives memory back some seconds after its last process has ended.
WAIT_SECONDS = 20
# Not on every user's PATH over SSH.
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

container, deployment, image, share, at_least, *ports = sys.argv[1:]


def require_image():
    """Docker would look for it in a registry, and say that it is not there either."""
    if inspected("image", image, "{{.Id}}") is None:
        fail(
            f"container {container} is not made: image {image} is no longer on this node. Bring it back: "
            "pulumi up --replace '**image-*'"
        )


def remove_leftover():
    """Whether there was a container of ours to remove."""
    owner = inspected("container", container, '{{index .Config.Labels "dgx-spark-serving.deployment"}}')
    if owner is None:
        return False
    if owner != deployment:
        fail(
            f"container {container} is there already and is not of deployment {deployment}: "
            f"rename or remove it (docker rm -f {container})"
        )
    removed = docker("rm", "--force", container)
    if removed.returncode != 0:
        fail(removed.stderr.strip())
    return True


def is_in_the_way(line):
    """Whether a line of `ss` is a listener on one of our ports, as preflight judges it. A line that was cut is none."""
    match = re.match(r"LISTEN\s+\S+\s+\S+\s+(\S+):(\d+)\s+\S+:\*(?:\s|$)", line)
    if not match or match[2] not in ports:
        return False
    # Ray listens on every address; the server on every one of IPv4, beside which one of IPv6 alone may stand.
    return match[1] in ("*", "[::]", "::") or not container.endswith("-server") or ":" not in match[1]


def taken_ports():
    """The listeners on our ports, as `ss` shows them. Never found by connecting, which would disturb them."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{PLACES}"}
    try:
        listeners = subprocess.run(
            ["ss", "-Hltnpe", "--cgroup"], capture_output=True, encoding="utf-8", errors="replace", env=environment
        )
    except OSError as error:
        fail(f"ss can't be run: {error.strerror}")
    if listeners.returncode != 0:
        fail(f"which ports are taken is not known: {listeners.stderr.strip() or 'ss failed'}")
    return [line for line in listeners.stdout.splitlines() if is_in_the_way(line)]


def memory():
    """Total and available memory, bytes."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", file.read(), re.MULTILINE))
    return int(fields["MemTotal"]) * 1024, int(fields["MemAvailable"]) * 1024


def problem():
    """What is in the way; None: nothing."""
    taken = taken_ports()
    if taken:
        return "a port that the container needs is taken:\n" + "\n".join(taken)
    total, available = memory()
    needed = max(float(share) * total, float(at_least))
    if available < needed:
        gib = 1024**3
        return (
            f"{available / gib:.1f} GiB of {total / gib:.1f} GiB memory are available, and the engine takes "
            f"{needed / gib:.1f} GiB: end what holds them (ps aux --sort=-rss | head), or lower server.gpuMemoryUtilization"
        )
    return None


require_image()
changed = remove_leftover()
begun = time.monotonic()
while (found := problem()) is not None:
    if time.monotonic() - begun > WAIT_SECONDS:
        fail(f"container {container} is not made: {found}")
    time.sleep(1)
print(json.dumps({"changed": changed}))

"""Just before a container is made: prepare_container.py CONTAINER DEPLOYMENT SHARE BYTES [PORT...]

Removes what an interrupted run left under its name, if it is ours, and looks again at what the engine relies on, since
preflight was some time ago: PORTs are free, and SHARE of the memory, and at least BYTES, is available.
"""

import json
import re
import subprocess
import sys
import time

# A GPU gives memory back some seconds after its last process has ended.
WAIT_SECONDS = 20

container, deployment, share, at_least, *ports = sys.argv[1:]


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)


def run(*argv):
    return subprocess.run(argv, capture_output=True, encoding="utf-8", errors="replace")


def remove_leftover():
    """Whether there was a container of ours to remove."""
    label = '{{index .Config.Labels "dgx-spark-serving.deployment"}}'
    owner = run("docker", "inspect", "--format", label, container)
    if owner.returncode != 0:
        return False
    if owner.stdout.strip() != deployment:
        fail(
            f"container {container} is there already and is not of deployment {deployment}: "
            f"rename or remove it (docker rm -f {container})"
        )
    removed = run("docker", "rm", "--force", container)
    if removed.returncode != 0:
        fail(removed.stderr.strip())
    return True


def taken_ports():
    """The listeners on our ports, as `ss` shows them. Never found by connecting, which would disturb them."""
    listeners = run("ss", "-Hltnpe", "--cgroup").stdout.splitlines()
    return [line for line in listeners if re.search(r":(\d+)$", line.split()[3]).group(1) in ports]


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


changed = remove_leftover()
begun = time.monotonic()
while (found := problem()) is not None:
    if time.monotonic() - begun > WAIT_SECONDS:
        fail(f"container {container} is not made: {found}")
    time.sleep(1)
print(json.dumps({"changed": changed}))

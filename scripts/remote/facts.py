"""What this machine says of itself, as one line of JSON: facts.py MODEL_PATH IMAGE_BYTES

Reads only, and needs no root. It gathers outputs as they are; components/preflight/readFacts.ts makes facts of them.
What is missing here is null there: a program that is not installed, or is too slow, has the code null. Docker is asked for
its images where less than IMAGE_BYTES are free for them: only there does it matter which it has, and it takes its time.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

# Each of these answers in milliseconds; one that hangs (a driver, a Docker daemon) must not hold up the rest.
LIMIT_SECONDS = 4
# JSON that is cut can't be read: room for hundreds of network interfaces, listeners and containers.
TEXT_LIMIT = 400_000

GPU_FIELDS = "index,gpu_name,pci.bus_id,driver_version,compute_cap,memory.total"
DOCKER_INFO = '{"version":{{json .ServerVersion}},"root":{{json .DockerRootDir}},"runtimes":{{json .Runtimes}}}'
DOCKER_CONTAINER = (
    '{"id":{{json .ID}},"name":{{json .Names}},"state":{{json .State}},'
    '"deployment":{{json (.Label "dgx-spark-serving.deployment")}}}'
)
COMMANDS = {
    "date": ["date", "+%s.%N"],
    "ipAddress": ["ip", "-json", "address"],
    "route": ["ip", "-json", "route", "show", "default"],
    "listeners": ["ss", "-Hltnpe", "--cgroup"],
    "nvidiaSmi": ["nvidia-smi"],
    "gpuQuery": ["nvidia-smi", f"--query-gpu={GPU_FIELDS}", "--format=csv,noheader"],
    "computeApps": ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"],
    "nvcc": ["nvcc", "--version"],
    "ibvDevinfo": ["ibv_devinfo"],
    "dockerInfo": ["docker", "info", "--format", DOCKER_INFO],
    "containers": ["docker", "ps", "--all", "--no-trunc", "--format", DOCKER_CONTAINER],
}
IMAGES = ["docker", "images", "--no-trunc", "--digests", "--format", "{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}} {{.ID}}"]
FILES = (
    "/etc/os-release",
    "/etc/dgx-release",
    "/proc/meminfo",
    "/proc/sys/kernel/osrelease",
    "/sys/class/dmi/id/product_name",
)
# Not on every user's PATH over SSH.
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/cuda/bin"


def read(*path):
    """Text of a small file; None where it can't be read."""
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read(TEXT_LIMIT)
    except OSError:
        return None


def listed(*path):
    try:
        return sorted(os.listdir(os.path.join(*path)))
    except OSError:
        return []


def output(argv):
    """What a program prints, with its exit code."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{os.environ.get('PATH', '')}:{PLACES}"}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return {"code": None, "stdout": "", "stderr": error.strerror or str(error)}
    try:
        stdout, stderr = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        # Its end is not waited for: what hangs in a driver can't be killed.
        os.killpg(process.pid, signal.SIGKILL)
        return {"code": None, "stdout": "", "stderr": f"no answer within {LIMIT_SECONDS} s"}
    return {"code": process.returncode, "stdout": stdout[:TEXT_LIMIT], "stderr": stderr[-500:]}


def limited(function, *arguments):
    """What a function returns; None where it hangs, as a name server or a disk on the network may."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)), daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    return results[0] if results else None


def rdma_port(device, port):
    """One port of an RDMA device, as sysfs has it. Unused places of the GID table are left out."""
    folder = f"/sys/class/infiniband/{device}/ports/{port}"
    gids = []
    for index in listed(folder, "gids"):
        gid = (read(folder, "gids", index) or "").strip()
        if gid and gid.replace("0", "").strip(":"):
            kind = read(folder, "gid_attrs/types", index)
            netdev = read(folder, "gid_attrs/ndevs", index)
            gids.append({"index": index, "gid": gid, "type": kind, "netdev": netdev})
    return {"port": port, "state": read(folder, "state"), "rate": read(folder, "rate"), "gids": gids}


def rdma():
    """RDMA devices and their ports."""
    devices = "/sys/class/infiniband"
    return [
        {
            "name": device,
            "firmware": read(devices, device, "fw_ver"),
            "netdevs": listed(devices, device, "device/net"),
            "ports": [rdma_port(device, port) for port in listed(devices, device, "ports")],
        }
        for device in listed(devices)
    ]


def disk(path):
    """Room on the disk that holds a path, or will hold it."""
    place = os.path.abspath(path)
    while True:
        try:
            space = os.statvfs(place)
            return {"path": path, "totalBytes": space.f_blocks * space.f_frsize, "freeBytes": space.f_bavail * space.f_frsize}
        except FileNotFoundError:
            place = os.path.dirname(place)
        except OSError:
            return {"path": path, "totalBytes": None, "freeBytes": None}


def addresses_of(name):
    """What a name resolves to here."""
    try:
        return sorted({found[4][0] for found in socket.getaddrinfo(name, None)})
    except OSError:
        return []


def containers_of(pids):
    """Container ids of processes, from their control groups: empty for one in none, left out where that is not told."""
    found = {}
    for pid in pids:
        groups = read("/proc", pid, "cgroup")
        if groups:
            match = re.search(r"[0-9a-f]{64}", groups)
            found[pid] = match.group() if match else ""
    return found


def container_memory(identity):
    """Memory of a container that its end would give back, bytes."""
    for folder in (
        f"/sys/fs/cgroup/system.slice/docker-{identity}.scope",
        f"/sys/fs/cgroup/docker/{identity}",
        f"/sys/fs/cgroup/memory/docker/{identity}",
    ):
        match = re.search(r"^(?:anon|total_rss) (\d+)$", read(folder, "memory.stat") or "", re.MULTILINE)
        if match:
            return int(match.group(1))
    return None


def main():
    model, image_bytes = sys.argv[1], float(sys.argv[2])
    commands = dict.fromkeys(COMMANDS)

    def ask(name, argv):
        commands[name] = output(argv)

    threads = [threading.Thread(target=ask, args=each) for each in COMMANDS.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pids = re.findall(r"^(\d+),", commands["computeApps"]["stdout"], re.MULTILINE)
    identities = re.findall(r'"id":"([0-9a-f]{64})"', commands["containers"]["stdout"])
    files = {path: read(path) for path in FILES}
    if files["/etc/dgx-release"]:
        # The serial number is nobody's business.
        files["/etc/dgx-release"] = re.sub(r"(?im)^.*serial.*\n?", "", files["/etc/dgx-release"])
    root = re.search(r'"root":"([^"]+)"', commands["dockerInfo"]["stdout"])
    image_disk = limited(disk, root.group(1)) if root else None
    if image_disk and (image_disk["freeBytes"] or 0) < image_bytes:
        commands["images"] = output(IMAGES)
    print(
        json.dumps(
            {
                "commands": commands,
                "files": files,
                "hasNvidiaHook": shutil.which("nvidia-container-runtime-hook", path=PLACES) is not None,
                "hostname": socket.gethostname(),
                "architecture": os.uname().machine,
                "cpus": os.cpu_count(),
                "resolved": limited(addresses_of, socket.gethostname()),
                "speeds": {name: read("/sys/class/net", name, "speed") for name in listed("/sys/class/net")},
                "rdma": rdma(),
                "imageDisk": image_disk,
                "modelDisk": limited(disk, model),
                "containerOfProcess": containers_of(pids),
                "containerMemoryBytes": {identity: container_memory(identity) for identity in identities},
            }
        )
    )


main()

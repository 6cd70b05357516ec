"""Facts of this machine, as one line of JSON. Reads only; what can't be known here is null."""

import json
import os
import platform
import subprocess


def output(*argv):
    """What a program prints; None without the program, or when it fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def first_field(path, key, separator):
    """The first value of `key` in a file of lines `key<separator>value`."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, found, value = line.partition(separator)
                if found and name.strip() == key:
                    return value.strip().strip('"') or None
    except OSError:
        pass
    return None


def memory_total_bytes():
    value = first_field("/proc/meminfo", "MemTotal", ":")
    number = value.split()[0] if value else ""
    return int(number) * 1024 if number.isdigit() else None


def gpu(field):
    """One field of the first GPU. GB10 says [N/A] where it has no answer."""
    value = output("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader")
    first = value.splitlines()[0].strip() if value else ""
    return first if first and first not in ("[N/A]", "[Not Supported]") else None


print(
    json.dumps(
        {
            "hostname": platform.node(),
            "architecture": platform.machine(),
            "operatingSystem": first_field("/etc/os-release", "PRETTY_NAME", "="),
            "kernel": platform.release(),
            "cpus": os.cpu_count(),
            "memoryTotalBytes": memory_total_bytes(),
            "dockerVersion": output("docker", "version", "--format", "{{.Server.Version}}"),
            "gpuName": gpu("name"),
            "gpuDriverVersion": gpu("driver_version"),
        }
    )
)

"""Checks this node's end of the fabric: check_fabric.py INTERFACE ADDRESS [HCA...]

The interface is there and up and holds the address, and each RDMA device is there. Names every problem at once.
"""

import json
import os
import subprocess
import sys

interface, address, *hcas = sys.argv[1:]


def interfaces():
    """Interface name -> (is it up, its addresses)."""
    text = subprocess.run(["ip", "-json", "address"], check=True, capture_output=True, text=True).stdout
    return {
        each["ifname"]: (
            each.get("operstate") in ("UP", "UNKNOWN"),
            [info["local"] for info in each.get("addr_info", []) if "local" in info],
        )
        for each in json.loads(text)
        if "ifname" in each
    }


problems = []
found = interfaces()
holders = [name for name, (_, addresses) in found.items() if address in addresses]
if interface not in found:
    problems.append(f"fabric.interface {interface} is not on this node; it has: {', '.join(sorted(found))}")
else:
    up, addresses = found[interface]
    if not up:
        problems.append(f"fabric.interface {interface} is down: is the cable in?")
    if address not in addresses:
        where = f"it is on {holders[0]}" if holders else "it is on no interface of this node"
        has = ", ".join(addresses) or "no address"
        problems.append(f"fabric.address {address} is not on {interface}, which has {has}; {where}")
devices = sorted(os.listdir("/sys/class/infiniband")) if os.path.isdir("/sys/class/infiniband") else []
for hca in hcas:
    if hca not in devices:
        problems.append(f"fabric.hcas {hca} is not on this node; it has: {', '.join(devices) or 'no RDMA device'}")

for problem in problems:
    print(problem, file=sys.stderr)
if problems:
    sys.exit(1)
print(json.dumps({"changed": False, "interface": interface, "address": address}))

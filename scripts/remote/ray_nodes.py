"""Prints the addresses of the nodes that are alive in a Ray cluster, as JSON: ray_nodes.py GCS_ADDRESS SECONDS ADDRESS...
As soon as they are exactly the given ones, else when the time is up: to start this takes a second of CPU, to ask takes none.
Runs inside the container, where Ray is. Asks the control service itself: `ray status` lags by seconds."""

import json
import sys
import time

from ray._raylet import GcsClient

ALIVE = 0
gcs_address, seconds, *expected = sys.argv[1:]
end = time.monotonic() + float(seconds)
client = GcsClient(address=gcs_address)
while True:
    nodes = client.get_all_node_info(timeout=5).values()
    alive = sorted(node.node_manager_address for node in nodes if node.state == ALIVE)
    if alive == sorted(expected) or time.monotonic() > end:
        break
    time.sleep(0.2)
print(json.dumps(alive))

"""Prints the addresses of the nodes that are alive in a Ray cluster, as JSON: ray_nodes.py GCS_ADDRESS
Runs inside the container, where Ray is. Asks the control service itself: `ray status` lags by seconds."""

import json
import sys

from ray._raylet import GcsClient

ALIVE = 0
nodes = GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5).values()
print(json.dumps(sorted(node.node_manager_address for node in nodes if node.state == ALIVE)))

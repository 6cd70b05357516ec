"""In Ray's container on the head: adds up a tensor over one rank a node, as the engine's ranks do at every layer.

all_reduce.py ADDRESS BACKEND BYTES NODE...: Ray's address, `nccl` or `gloo`, and the nodes' fabric addresses.
It ends, and its ranks with it, when its stdin does: whoever wanted the figures is gone then.
Prints JSON: {"busBytesPerSecond", "logs": {node: what NCCL said of its transport}}.
"""

import glob
import json
import os
import socket
import sys
import threading
import time

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ROUNDS = 5
# A node that has just joined in the place of another: until Ray notices, the one that is gone counts as alive.
STALE_SECONDS = 60
# Lines of NCCL's log that tell which way the data goes.
TELLING = ("NET/", " via ", "NCCL version", "GID", "NIC", "Using network")
LOG_LIMIT = 6000


class Rank:
    def __init__(self, node):
        self.node = node

    def free_port(self):
        """A port on this node's fabric address that nothing listens on."""
        with socket.socket(socket.AF_INET6 if ":" in self.node else socket.AF_INET) as probe:
            probe.bind((self.node, 0))
            return probe.getsockname()[1]

    def run(self, rank, ranks, backend, size, head, port):
        log = f"/tmp/all-reduce-{os.getpid()}.log"
        # INIT and NET write the TELLING lines, whatever server.environment asks for.
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=log)
        # Ray hides the GPU from an actor that asks for none; asking would wait for an engine that has it.
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        import torch
        import torch.distributed

        host = f"[{head}]" if ":" in head else head
        torch.distributed.init_process_group(backend, f"tcp://{host}:{port}", world_size=ranks, rank=rank)
        device = "cuda" if backend == "nccl" else "cpu"
        tensor = torch.ones(size // 4, dtype=torch.float32, device=device)

        def all_reduce():
            torch.distributed.all_reduce(tensor)
            if device == "cuda":
                torch.cuda.synchronize()

        # The first one makes the connections.
        all_reduce()
        if tensor[0].item() != ranks:
            raise RuntimeError(f"the sum over {ranks} ranks is {tensor[0].item()}")
        torch.distributed.barrier()
        begun = time.monotonic()
        for _ in range(ROUNDS):
            all_reduce()
        seconds = (time.monotonic() - begun) / ROUNDS
        torch.distributed.destroy_process_group()
        return seconds, self.log(log)

    def log(self, path):
        lines = []
        for name in glob.glob(path):
            with open(name, encoding="utf-8", errors="replace") as file:
                lines += [line for line in file if any(word in line for word in TELLING)]
            os.remove(name)
        return "".join(lines)[:LOG_LIMIT]


def run(nodes, backend, size):
    """Seconds and log of each rank; nodes that are gone are waited out."""
    begun = time.monotonic()
    while True:
        ids = {each["NodeManagerAddress"]: each["NodeID"] for each in ray.nodes() if each["Alive"]}
        try:
            return run_on([ids[node] for node in nodes], nodes, backend, size)
        except (KeyError, ray.exceptions.ActorUnschedulableError, ray.exceptions.RayActorError):
            if time.monotonic() - begun > STALE_SECONDS:
                raise
            time.sleep(1)


def run_on(ids, nodes, backend, size):
    actor = ray.remote(num_cpus=0)(Rank)
    ranks = [
        actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(each, soft=False)).remote(node)
        for each, node in zip(ids, nodes)
    ]
    port = ray.get(ranks[0].free_port.remote())
    return ray.get([rank.run.remote(at, len(nodes), backend, size, nodes[0], port) for at, rank in enumerate(ranks)])


def end_with_stdin():
    sys.stdin.read()
    os._exit(1)


def main():
    threading.Thread(target=end_with_stdin, daemon=True).start()
    address, backend, size, *nodes = sys.argv[1:]
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    results = run(nodes, backend, int(size))
    slowest = max(seconds for seconds, _ in results)
    # As nccl-tests counts: what each link carries.
    bus = 2 * (len(nodes) - 1) / len(nodes) * int(size) / slowest
    print(json.dumps({"busBytesPerSecond": round(bus), "logs": {node: log for node, (_, log) in zip(nodes, results)}}))


main()

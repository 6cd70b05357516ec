"""Ranks of the lab talk over the network only."""

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class GlooCommunicator(CpuCommunicator):
    """Never takes the /dev/shm fast path.

    The virtual Sparks share one kernel: vLLM would find the ranks "local" and either fail to open the
    other host's shared memory or, worse, bypass the fabric in silence.
    """

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        return False

"""vLLM platform plugin for machines without a GPU: vLLM's CPU platform, schedulable by Ray.

Each virtual Spark starts Ray with `--num-gpus 1`, a logical GPU that holds one rank.
"""


def register() -> str:
    """Name the platform class, as the entry point group `vllm.platform_plugins` expects."""
    return "vllm_lab_platform.platform.LabCpuPlatform"

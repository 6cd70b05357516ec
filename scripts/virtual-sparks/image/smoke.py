"""Imports what serving and measuring use: proves the trimmed image whole, and leaves the byte code that makes it start quickly."""

import compileall
import importlib
import pathlib

import ray

MODULES = [
    "llama_benchy.__main__",
    "ray",
    "ray._raylet",
    "ray._private.node",
    "ray._private.workers.default_worker",
    "ray.scripts.scripts",
    "ray.util.placement_group",
    "ray.util.state",
    "torch",
    "torch.distributed",
    "transformers.models.qwen3_moe",
    "vllm.benchmarks.serve",
    "vllm.distributed.device_communicators.cpu_communicator",
    "vllm.entrypoints.cli.main",
    "vllm.entrypoints.openai.api_server",
    "vllm.model_executor.models.qwen3_moe",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.ray_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm_lab_platform.communicator",
    "vllm_lab_platform.platform",
]

# What others of Ray's processes import (its agents walk through all of the dashboard's modules), and vLLM's workers. What has
# no byte code in the image is compiled again in every new container.
FOLDERS = [
    "compressed_tensors",
    "loguru",
    "pydantic/v1",
    "ray/_common",
    "ray/_private",
    "ray/autoscaler",
    "ray/core",
    "ray/dashboard",
    "ray/util",
    "sympy/combinatorics",
    "sympy/tensor",
    "torch/_export",
    "torch/export",
    "vllm/model_executor/layers",
    "vllm/v1",
]

for module in MODULES:
    importlib.import_module(module)

packages = pathlib.Path(ray.__file__).parents[1]
for folder in FOLDERS:
    assert (packages / folder).is_dir(), folder
    compileall.compile_dir(packages / folder, quiet=2)

import torch  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402

assert not torch.cuda.is_available()
assert type(current_platform).__name__ == "LabCpuPlatform", type(current_platform)
current_platform.import_kernels()
assert hasattr(torch.ops._C, "silu_and_mul"), "vLLM's CPU kernels do not load on this processor"
print("imports whole")

"""The CPU platform with what serving over several hosts needs on top."""

from vllm.platforms.cpu import CpuPlatform


class LabCpuPlatform(CpuPlatform):
    # Without it: "current platform cpu does not support ray".
    ray_device_key: str = "GPU"
    # The default compiles on the first request; the image has no C++ compiler.
    simple_compile_backend: str = "eager"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "vllm_lab_platform.communicator.GlooCommunicator"

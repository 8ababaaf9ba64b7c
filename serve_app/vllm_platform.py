"""Lets vLLM's configuration be read where there is no accelerator, such as on a cluster's head."""


def assume_cpu() -> None:
    """Take the CPU for vLLM's platform in this process if vLLM finds none.

    Without a platform vLLM does not even parse arguments. Call this before anything else of vLLM
    is imported, as its modules keep the platform that they saw. vLLM does the same for those of its
    own commands that run no engine.
    """
    from vllm import platforms

    if platforms.current_platform.is_unspecified():
        from vllm.platforms.cpu import CpuPlatform

        platforms.current_platform = CpuPlatform()

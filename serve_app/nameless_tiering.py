"""vLLM's tiers, whose CPU memory goes with its engine however that ends.

Where tiers lie below it, the CPU tier is a file in /dev/shm that the engine's processes map. vLLM
removes it when the engine ends in order; a killed one would leave its memory taken for good.
"""

from contextlib import suppress
from pathlib import Path

from vllm.v1.kv_offload.base import CanonicalKVCaches, OffloadingManager
from vllm.v1.kv_offload.cpu.gpu_worker import CPUOffloadingWorker
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class NamelessTieringSpec(TieringOffloadingSpec):
    """vLLM's tiers, over memory that has no name once all processes have it."""

    def create_worker(self, kv_caches: CanonicalKVCaches) -> CPUOffloadingWorker:
        """Return a worker that leaves the name to the scheduler's process."""
        worker = super().create_worker(kv_caches)
        assert worker._mmap_region is not None
        worker._mmap_region._creator = False
        return worker

    def get_manager(self) -> OffloadingManager:
        """Return the scheduler's manager; the first call makes it and removes the memory's name.

        vLLM makes the scheduler after all workers have their caches, and so the memory.
        """
        manager = super().get_manager()
        region = self._scheduler_mmap
        if region is not None and not region._creator:
            with suppress(FileNotFoundError):
                Path(region.mmap_path).unlink()
        return manager

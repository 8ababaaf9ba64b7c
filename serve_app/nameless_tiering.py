"""vLLM's tiers, whose CPU memory goes with its engine however that ends.

Where tiers lie below it, the CPU tier is a file in /dev/shm that the engine's processes map. vLLM
removes it when the engine ends in order; a killed one would leave its memory taken for good.
A worker still tries to remove what it made, and may log that it's gone: until the scheduler is
there, nobody else would.
"""

from contextlib import suppress
from pathlib import Path

from vllm.v1.kv_offload.base import OffloadingManager
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class NamelessTieringSpec(TieringOffloadingSpec):
    """vLLM's tiers, over memory that has no name once all processes have it."""

    def get_manager(self) -> OffloadingManager:
        """Return the scheduler's manager; the first call makes it and removes the memory's name.

        vLLM makes the scheduler after all workers have their caches, and so the memory. An engine
        whose manager cannot be made ends, and its workers with it.
        """
        try:
            return super().get_manager()
        finally:
            region = self._scheduler_mmap
            if region is None or not region._creator:
                with suppress(FileNotFoundError):
                    Path(f"/dev/shm/vllm_offload_{self._engine_id}.mmap").unlink()  # noqa: S108

"""Makes replicas that are alike."""

from itertools import count

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.presets import Hardware
from policies.types import ReplicaId

_UNLIMITED_BLOCKS = 1 << 40


class ReplicaFactory:
    """Replicas of one hardware; `unlimited` ones share one memory without end."""

    def __init__(self, hardware: Hardware, block_size: int, *, unlimited: bool = False) -> None:
        self._hardware = hardware
        self._gpu_blocks = hardware.gpu_tokens // block_size
        self._host_blocks = 0 if unlimited else hardware.host_tokens // block_size
        self._common_pool = BlockPool(_UNLIMITED_BLOCKS) if unlimited else None
        self._numbers = count()

    def make(self) -> Engine:
        """Return a new replica with a name of its own, cold unless its memory is shared."""
        pool = self._common_pool or BlockPool(self._gpu_blocks)
        memory = KvMemory(pool, HostCache(self._host_blocks))
        return Engine(ReplicaId(f"r{next(self._numbers)}"), self._hardware, memory)

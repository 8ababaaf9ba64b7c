"""Makes replicas that are alike."""

from itertools import count

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.shared_tier import SharedTier, SharedTierSize
from policies.types import ReplicaId

_UNLIMITED_BLOCKS = 1 << 40


class ReplicaFactory:
    """Replicas of one hardware; `unlimited` ones share one memory without end.

    With `pooled` they share what that many replicas have. All others share a tier, if one is given.
    """

    def __init__(
        self,
        hardware: Hardware,
        block_size: int,
        shared: SharedTierSize | None = None,
        *,
        unlimited: bool = False,
        pooled: int | None = None,
    ) -> None:
        self._hardware = hardware
        self._gpu_blocks = hardware.gpu_tokens // block_size
        self._host_blocks = 0 if unlimited else hardware.host_tokens // block_size
        self._common_pool: BlockPool | None = None
        self._common_host: HostCache | None = None
        if unlimited:
            self._common_pool = BlockPool(_UNLIMITED_BLOCKS)
        elif pooled:
            self._common_pool = BlockPool(pooled * self._gpu_blocks)
            self._common_host = HostCache(pooled * self._host_blocks)
        self._tier = None if self._common_pool or not shared else SharedTier(shared, block_size)
        self._numbers = count()

    def make(self) -> Engine:
        """Return a new replica with a name of its own, cold unless its memory is shared."""
        pool = self._common_pool or BlockPool(self._gpu_blocks)
        memory = KvMemory(pool, self._common_host or HostCache(self._host_blocks))
        return Engine(ReplicaId(f"r{next(self._numbers)}"), self._hardware, memory, self._tier)

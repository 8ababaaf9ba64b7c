"""What a replica reports of itself."""

from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.measured_rates import MeasuredRates
from benchmarks.simulator.presets import Hardware
from policies.types import ReplicaId, ReplicaState


class Report:
    """Its state, put together when asked for and kept until `outdate`."""

    def __init__(
        self, replica: ReplicaId, hardware: Hardware, memory: KvMemory, rates: MeasuredRates
    ) -> None:
        self._replica = replica
        self._hardware = hardware
        self._memory = memory
        self._rates = rates
        self._state: ReplicaState | None = None
        self.draining = False
        """Whether it says that it takes no more requests."""

    def outdate(self) -> None:
        """Note that something changed."""
        self._state = None

    def state(self, running: int, waiting: int) -> ReplicaState:
        """Return it, with so many requests."""
        if self._state is None:
            self._state = ReplicaState(
                replica=self._replica,
                generation=1,
                total_blocks=self._memory.pool.total,
                free_blocks=self._memory.pool.free,
                running=running,
                waiting=waiting,
                max_requests=self._hardware.max_requests,
                prefill_tokens_per_s=self._rates.prefill_tokens_per_s,
                restore_tokens_per_s=self._hardware.restore_tokens_per_s,
                fetch_tokens_per_s=self._rates.fetch_tokens_per_s,
                hold_s=self._rates.hold_s,
                draining=self.draining,
            )
        return self._state

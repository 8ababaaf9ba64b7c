"""Which replica has which slot: a small number, by which masks of holders know it."""

from policies.block_holders import bit
from policies.types import ReplicaId, Tier


class Slots:
    """The lowest free number goes to who comes; who leaves frees it."""

    def __init__(self) -> None:
        self._replicas: list[ReplicaId | None] = []
        self.mask = 0
        """The first bit of each slot that is taken."""

    def take(self, replica: ReplicaId) -> int:
        """Return a replica's new slot."""
        if None not in self._replicas:
            self._replicas.append(None)
        slot = self._replicas.index(None)
        self._replicas[slot] = replica
        self.mask |= bit(slot, Tier.GPU)
        return slot

    def free(self, slot: int) -> None:
        """Give a slot back. To be called once nothing is held there."""
        self._replicas[slot] = None
        self.mask ^= bit(slot, Tier.GPU)

    def replica(self, slot: int) -> ReplicaId:
        """Return whose a taken slot is."""
        replica = self._replicas[slot]
        assert replica is not None
        return replica

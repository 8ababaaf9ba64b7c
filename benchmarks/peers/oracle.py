"""Bounds: what a fleet could do whose replicas shared one memory.

With a memory without end every block that was ever computed is at hand everywhere at no cost, and
nothing waits for memory; what remains are first prefills, and how even the load is. With as much as
the replicas have together, evicting the least recently used, blocks are evicted and requests wait
as little as they could if moving KV cost nothing and no replica's memory were apart.
"""

from collections.abc import Sequence
from random import Random

from benchmarks.peers.policy import Peer
from policies.types import ReplicaId, ReplicaState, Request


class Oracle(Peer):
    """Fewest requests. The simulation gives it engines with one memory, unlimited or pooled."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""

        def load(state: ReplicaState) -> tuple[int, float]:
            return state.running + state.waiting, self._rng.random()

        return min(replicas, key=load).replica

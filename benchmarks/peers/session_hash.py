"""Consistent hashing on the session: what most session-affine routers do."""

from bisect import bisect
from collections.abc import Sequence
from hashlib import blake2b
from random import Random

from benchmarks.peers.policy import Peer
from policies.types import ReplicaId, ReplicaState, Request


class SessionHash(Peer):
    """A ring with `virtual_nodes` points a replica (100 in Ray Serve's ConsistentHashRouter)."""

    def __init__(self, rng: Random, virtual_nodes: int = 100) -> None:
        self._virtual_nodes = virtual_nodes
        self._ring: list[tuple[int, ReplicaId]] = []
        self._on_ring: tuple[ReplicaId, ...] = ()

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        names = tuple(state.replica for state in replicas)
        if names != self._on_ring:
            self._on_ring = names
            points = range(int(self._virtual_nodes))
            self._ring = sorted((_hash(f"{name}#{i}"), name) for name in names for i in points)
        point = _hash(str(request.session or request.request))
        return self._ring[bisect(self._ring, (point, "")) % len(self._ring)][1]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())

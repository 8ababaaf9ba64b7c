"""Rules that know nothing of caches: random, round robin, power of two choices."""

from collections.abc import Sequence
from random import Random

from benchmarks.peers.policy import Peer
from policies.types import ReplicaId, ReplicaState, Request


class RandomChoice(Peer):
    """Any replica."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        return self._rng.choice(replicas).replica


class RoundRobin(Peer):
    """One replica after the other."""

    def __init__(self, rng: Random) -> None:
        self._next = 0

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        self._next += 1
        return replicas[self._next % len(replicas)].replica


class PowerOfTwo(Peer):
    """The one of two random replicas that has fewer requests: Ray Serve's default."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        two = self._rng.sample(replicas, min(2, len(replicas)))
        return min(two, key=lambda state: state.running + state.waiting).replica

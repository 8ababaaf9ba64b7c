"""Ray Serve LLM's PrefixCacheAffinityRouter.

Source: docs.ray.io, "PrefixCacheAffinityRouter for LLM inference optimization". While queues differ
by at most `imbalanced_threshold` (shipped: infinite) the replica with the longest match takes a
request if that is at least `match_rate_threshold` of the prompt (0.1), else one with the smallest
tree; power of two choices decides between several, or where the queues differ by more.
"""

from collections.abc import Sequence
from math import inf
from random import Random

from benchmarks.peers.policy import Peer
from benchmarks.peers.sent_prefixes import SentPrefixes
from benchmarks.peers.spreading import PowerOfTwo
from policies.types import ReplicaId, ReplicaState, Request


class RayPrefix(Peer):
    """Longest match in a tree of sent prompts."""

    def __init__(
        self,
        rng: Random,
        imbalanced_threshold: float = inf,
        match_rate_threshold: float = 0.1,
    ) -> None:
        self._imbalanced = imbalanced_threshold
        self._match_rate = match_rate_threshold
        self._power_of_two = PowerOfTwo(rng)
        self._sent = SentPrefixes()

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        queues = [state.running + state.waiting for state in replicas]
        candidates = replicas
        if max(queues) - min(queues) <= self._imbalanced:
            matches = self._sent.matches(request.hashes, [one.replica for one in replicas])
            longest = max(matches.values())
            if longest * request.block_size >= self._match_rate * request.prompt_tokens:
                candidates = [one for one in replicas if matches[one.replica] == longest]
            else:
                sizes = {s.replica: self._sent.new_tokens.get(s.replica, 0) for s in replicas}
                smallest = min(sizes.values())
                candidates = [one for one in replicas if sizes[one.replica] == smallest]
        chosen = self._power_of_two.place(request, candidates, now_s)
        self._sent.add(request.hashes, chosen, request.block_size)
        return chosen

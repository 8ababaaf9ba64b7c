"""llm-d's weighted scorers: prefix, KV use and queue.

Source: llm-d/llm-d, docs of the inference scheduler ("precise-prefix-cache:2, queue-depth:1,
kv-utilization:1"). Each score is between 0 and 1: the share of the prompt that is cached, with
blocks in CPU memory at 0.8; 1 - the share of KV in use; and where a replica's queue of waiting
requests lies between the longest (0) and the shortest (1). The largest weighted sum wins, at random
among equals.
"""

from collections.abc import Sequence
from random import Random

from benchmarks.peers.exact_prefixes import EventPeer
from policies.types import ReplicaId, ReplicaState, Request

_CPU_WEIGHT = 0.8


class LlmdWeighted(EventPeer):
    """The largest weighted sum of scores."""

    def __init__(
        self, rng: Random, prefix: float = 2.0, kv_use: float = 1.0, queue: float = 1.0
    ) -> None:
        super().__init__()
        self._rng = rng
        self._prefix = prefix
        self._kv_use = kv_use
        self._queue = queue

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        matches = self.matches(request, replicas)
        waiting = [state.waiting for state in replicas]
        longest, shortest = max(waiting), min(waiting)
        scores = []
        for state in replicas:
            match = matches[state.replica]
            cached = match.gpu_blocks + _CPU_WEIGHT * match.cpu_blocks
            queue = (longest - state.waiting) / (longest - shortest) if longest > shortest else 1.0
            score = (
                self._prefix * cached / request.blocks
                + self._kv_use * state.free_blocks / state.total_blocks
                + self._queue * queue
            )
            scores.append((score, self._rng.random(), state.replica))
        chosen = max(scores)[2]
        self.send(request, chosen, matches[chosen], now_s)
        return chosen

"""vLLM production-stack's load-aware routing.

Source: vllm-project/production-stack#1035. The largest

    matched tokens / prompt tokens - beta * (load - mean load) / max(1, mean load)

wins, where load is the requests that this router has in flight there; shipped: beta 1.
"""

from collections.abc import Sequence
from random import Random
from statistics import fmean

from benchmarks.peers.exact_prefixes import EventPeer
from policies.types import ReplicaId, ReplicaState, Request


class ProductionStack(EventPeer):
    """Share of the prompt that is cached, less relative load."""

    def __init__(self, rng: Random, beta: float = 1.0) -> None:
        super().__init__()
        self._rng = rng
        self._beta = beta

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        matches = self.matches(request, replicas)
        loads = {state.replica: self.requests.get(state.replica, 0) for state in replicas}
        mean = fmean(loads.values())

        def score(state: ReplicaState) -> tuple[float, float]:
            matched = matches[state.replica].blocks * request.block_size / request.prompt_tokens
            relative = (loads[state.replica] - mean) / max(1.0, mean)
            return matched - self._beta * relative, self._rng.random()

        chosen = max(replicas, key=score).replica
        self.send(request, chosen, matches[chosen], now_s)
        return chosen

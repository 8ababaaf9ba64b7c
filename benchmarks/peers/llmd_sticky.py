"""llm-d's default of 2026: sticky until saturated.

Source: llm-d/llm-d-router, README of the prefix-cache-affinity-filter and #1639, and llm-d's blog
"Sticky Until Saturated". Replicas with at least `affinity_threshold` (shipped: 0.8) of the prompt
are kept, unless the best of them is expected to start over `max_ttft_penalty_s` (18) later than
the best of the others, by uncached tokens in flight / peak prefill rate. Of what is left the one
with the least uncached tokens in flight, this prompt's among them, wins. One request in a hundred
skips the filter.
"""

from collections.abc import Sequence
from random import Random

from benchmarks.peers.exact_prefixes import EventPeer
from policies.types import ReplicaId, ReplicaState, Request

_EXPLORE_RATIO = 0.01


class LlmdSticky(EventPeer):
    """Affinity filter, then token load."""

    def __init__(
        self, rng: Random, affinity_threshold: float = 0.8, max_ttft_penalty_s: float = 18.0
    ) -> None:
        super().__init__()
        self._rng = rng
        self._affinity = affinity_threshold
        self._max_penalty_s = max_ttft_penalty_s

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        matches = self.matches(request, replicas)
        kept = replicas
        if self._rng.random() >= _EXPLORE_RATIO:
            kept = self._filter(request, replicas, {r: m.blocks for r, m in matches.items()})

        def load(state: ReplicaState) -> tuple[float, float]:
            cached = matches[state.replica].blocks * request.block_size
            in_flight = self.uncached_tokens.get(state.replica, 0)
            return in_flight + max(1, request.prompt_tokens - cached), self._rng.random()

        chosen = min(kept, key=load).replica
        self.send(request, chosen, matches[chosen], now_s)
        return chosen

    def _filter(
        self,
        request: Request,
        replicas: Sequence[ReplicaState],
        blocks: dict[ReplicaId, int],
    ) -> Sequence[ReplicaState]:
        least = self._affinity * request.blocks
        sticky = [one for one in replicas if blocks[one.replica] >= least]
        others = [one for one in replicas if blocks[one.replica] < least]
        if not sticky or not others:
            return replicas

        def ttft_s(state: ReplicaState) -> float:
            return self.uncached_tokens.get(state.replica, 0) / state.prefill_tokens_per_s

        penalty_s = min(map(ttft_s, sticky)) - min(map(ttft_s, others))
        return replicas if penalty_s > self._max_penalty_s else sticky

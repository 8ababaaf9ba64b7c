"""SGLang's cache-aware gateway (now Shepherd Model Gateway).

Source: lightseekorg/smg, docs/concepts/routing/cache-aware.md and docs/getting-started. A fleet
is imbalanced if the largest load is over `balance_abs_threshold` (shipped: 64) above the smallest
and over `balance_rel_threshold` (1.5) times it; then the shortest queue takes a request. Else the
worker with the longest match does, if that is over `cache_threshold` (0.3) of the prompt, else the
one with the smallest tree. Load is what this router has in flight.
"""

from collections.abc import Sequence
from random import Random

from benchmarks.peers.policy import Peer
from benchmarks.peers.sent_prefixes import SentPrefixes
from policies.types import ReplicaId, ReplicaState, Request, RequestId


class Sglang(Peer):
    """Longest match in a tree of sent prompts, shortest queue when out of balance."""

    def __init__(
        self,
        rng: Random,
        cache_threshold: float = 0.3,
        balance_abs_threshold: float = 64,
        balance_rel_threshold: float = 1.5,
    ) -> None:
        self._cache_threshold = cache_threshold
        self._abs = balance_abs_threshold
        self._rel = balance_rel_threshold
        self._sent = SentPrefixes()
        self._in_flight: dict[RequestId, ReplicaId] = {}
        self._loads: dict[ReplicaId, int] = {}

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        names = [state.replica for state in replicas]
        loads = {name: self._loads.get(name, 0) for name in names}
        most, least = max(loads.values()), min(loads.values())
        if most - least > self._abs and most > self._rel * least:
            chosen = min(names, key=loads.__getitem__)
        else:
            matches = self._sent.matches(request.hashes, names)
            chosen = max(names, key=matches.__getitem__)
            if matches[chosen] * request.block_size <= self._cache_threshold * (
                request.prompt_tokens
            ):
                chosen = min(names, key=lambda name: self._sent.new_tokens.get(name, 0))
        self._sent.add(request.hashes, chosen, request.block_size)
        self._in_flight[request.request] = chosen
        self._loads[chosen] = self._loads.get(chosen, 0) + 1
        return chosen

    def end(self, request: RequestId, now_s: float) -> None:
        """Count a request no more."""
        self._loads[self._in_flight.pop(request)] -= 1

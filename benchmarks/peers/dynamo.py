"""NVIDIA Dynamo's KV router, and its preset for agents.

Source: docs.nvidia.com/dynamo, "Routing Concepts" and "Configuration and Tuning" (v1.5). The
least of

    prefill_load_scale * max(0, tokens to prefill there + prompt - credit) / block size
    + active blocks there + the prompt's blocks + active_request_weight * requests there

wins (temperature 0), where the credit is overlap_credit per cached GPU token, and 0.75 per token in
CPU memory. Shipped: credit 1, scale 1, weight 0; the preset for agents: 2, 4 and 64. Blocks are of
64 tokens, whatever the simulation's.
"""

from collections.abc import Sequence
from functools import partial
from random import Random

from benchmarks.peers.exact_prefixes import EventPeer
from policies.types import ReplicaId, ReplicaState, Request

_BLOCK_TOKENS = 64
_HOST_CREDIT = 0.75


class Dynamo(EventPeer):
    """Prefill and decode load in blocks."""

    def __init__(
        self,
        rng: Random,
        overlap_credit: float = 1.0,
        prefill_load_scale: float = 1.0,
        active_request_weight: float = 0.0,
    ) -> None:
        super().__init__()
        self._rng = rng
        self._credit = overlap_credit
        self._scale = prefill_load_scale
        self._request_weight = active_request_weight

    def place(self, request: Request, replicas: Sequence[ReplicaState], now_s: float) -> ReplicaId:
        """Return where a request goes."""
        matches = self.matches(request, replicas)
        size = request.block_size

        def cost(state: ReplicaState) -> tuple[float, float]:
            replica, match = state.replica, matches[state.replica]
            credit = self._credit * match.gpu_blocks * size + _HOST_CREDIT * match.cpu_blocks * size
            booked = self.uncached_tokens.get(replica, 0)
            prefill = max(0.0, booked + request.prompt_tokens - credit)
            active = self.blocks.get(replica, 0) * size + request.prompt_tokens
            blocks = (self._scale * prefill + active) / _BLOCK_TOKENS
            requests = self.requests.get(replica, 0)
            return blocks + self._request_weight * requests, self._rng.random()

        chosen = min(replicas, key=cost).replica
        self.send(request, chosen, matches[chosen], now_s)
        return chosen


DynamoAgentic = partial(
    Dynamo, overlap_credit=2.0, prefill_load_scale=4.0, active_request_weight=64.0
)
"""The preset for agents."""

"""What routers that follow KV events know: who holds which blocks, and what was sent where."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.policy import Peer
from policies.kv_events import EventBatch
from policies.match import NO_MATCH, Match
from policies.prefix_index import PrefixIndex
from policies.types import ReplicaId, ReplicaState, Request, RequestId


@dataclass(slots=True)
class _Sent:
    replica: ReplicaId
    uncached_tokens: int
    blocks: int


class EventPeer(Peer):
    """Follows events, and counts what is in flight: requests, tokens to prefill, and blocks."""

    def __init__(self) -> None:
        self._index = PrefixIndex(2.0, remember_s=0.0, max_remembered=0, max_shared=0)
        self._in_flight: dict[RequestId, _Sent] = {}
        self.requests: dict[ReplicaId, int] = {}
        self.uncached_tokens: dict[ReplicaId, int] = {}
        self.blocks: dict[ReplicaId, int] = {}

    def matches(self, request: Request, replicas: Sequence[ReplicaState]) -> dict[ReplicaId, Match]:
        """Return how much of a prompt each replica has."""
        found = self._index.match(request.hashes)
        return {state.replica: found.get(state.replica, NO_MATCH) for state in replicas}

    def send(self, request: Request, replica: ReplicaId, match: Match, now_s: float) -> None:
        """Count a request that was placed."""
        uncached = max(1, request.prompt_tokens - match.blocks * request.block_size)
        self._in_flight[request.request] = _Sent(replica, uncached, request.blocks)
        for counts, amount in (
            (self.requests, 1),
            (self.uncached_tokens, uncached),
            (self.blocks, request.blocks),
        ):
            counts[replica] = counts.get(replica, 0) + amount
        self._index.expect(replica, request.hashes[match.gpu_blocks :], now_s)

    def first_byte(self, request: RequestId, now_s: float) -> None:
        """Count its prefill no more."""
        sent = self._in_flight[request]
        self.uncached_tokens[sent.replica] -= sent.uncached_tokens
        sent.uncached_tokens = 0

    def end(self, request: RequestId, now_s: float) -> None:
        """Count it no more."""
        sent = self._in_flight.pop(request)
        self.requests[sent.replica] -= 1
        self.uncached_tokens[sent.replica] -= sent.uncached_tokens
        self.blocks[sent.replica] -= sent.blocks

    def apply(self, batch: EventBatch, now_s: float) -> None:
        """Follow a replica's caches."""
        self._index.apply(batch, now_s)

    def forget(self, replica: ReplicaId, now_s: float) -> None:
        """Forget a replica that is gone."""
        self._index.forget(replica, now_s)

    def tick(self, replicas: int, now_s: float) -> None:
        """Let go of what is too old."""
        self._index.expire(now_s)

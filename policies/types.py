"""The nouns that every decision is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NewType

ReplicaId = NewType("ReplicaId", str)
SessionId = NewType("SessionId", str)
RequestId = NewType("RequestId", str)
BlockHash = NewType("BlockHash", int)


class Tier(IntEnum):
    """Where a block of KV lies, fastest first."""

    GPU = 0
    CPU = 1
    SHARED = 2


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a replica last reported of itself.

    `free_blocks` are those that no running request uses, cached ones among them. `hold_s` is how
    long a request holds its GPU memory, on average. `synced` says whether the index knows what
    the replica holds. The three rates are measured, and positive.
    """

    replica: ReplicaId
    generation: int
    total_blocks: int
    free_blocks: int
    running: int
    waiting: int
    max_requests: int
    prefill_tokens_per_s: float
    restore_tokens_per_s: float
    fetch_tokens_per_s: float
    hold_s: float
    draining: bool = False
    synced: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """One turn. `hashes` are of its full blocks, salted with model, LoRA adapter and tenant.

    `session` is None where neither the client nor the prompt's lineage names one.
    """

    request: RequestId
    session: SessionId | None
    hashes: Sequence[BlockHash]
    prompt_tokens: int
    block_size: int
    arrived_at_s: float

    @property
    def blocks(self) -> int:
        """GPU blocks that the prompt takes."""
        return -(-self.prompt_tokens // self.block_size)


@dataclass(frozen=True, slots=True)
class Booking:
    """What one request is expected to put on the replica it was sent to.

    `uncached_tokens` are to be prefilled, `fetched_tokens` to be fetched from the shared tier, and
    `blocks` are those it makes unavailable to others. `cold` says that its prefill is far longer
    than is usual in the fleet. A `parked` one waits at the router for that replica and takes
    nothing there but a place before later prefills.
    """

    request: RequestId
    session: SessionId | None
    replica: ReplicaId
    uncached_tokens: int
    blocks: int
    cold: bool
    parked: bool
    fetched_tokens: int = 0


class Rule(StrEnum):
    """Which rule chose the replica."""

    NEW = "new"
    STAYED = "stayed"
    MOVED = "moved"
    SPLIT = "split"


ScorerSeconds = Mapping[str, float]
"""Weighted seconds by scorer's name."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a request goes, and why.

    `replicas` are all that could take it, the chosen one first, then by cost. `home` is where its
    session lives from now on. `cached_tokens` is what the chosen replica is expected to reuse, and
    `ttft_s` its expected time from the request's arrival there to the first token.
    """

    replicas: tuple[ReplicaId, ...]
    home: ReplicaId
    rule: Rule
    reason: str
    seconds: Mapping[ReplicaId, ScorerSeconds]
    cached_tokens: Mapping[Tier, int]
    ttft_s: float
    booking: Booking

    @property
    def replica(self) -> ReplicaId:
        """The chosen replica."""
        return self.replicas[0]

    @property
    def request(self) -> RequestId:
        """Whose it is."""
        return self.booking.request


@dataclass(frozen=True, slots=True)
class Park:
    """A request waits at the router, until `until_s` at most, as its choice has no room for it.

    Of those that wait, the least `order` goes first. `booking` is what it adds meanwhile to the
    cost of the replica it would go to. One that is `held` adds nothing, and goes after
    all others: its session waits for a place among those that run.
    """

    until_s: float
    order: tuple[bool, float]
    reason: str
    seconds: Mapping[ReplicaId, ScorerSeconds]
    booking: Booking
    held: bool = False

    @property
    def request(self) -> RequestId:
        """Whose it is."""
        return self.booking.request


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request is turned away: its session found no place for as long as a request may wait."""

    request: RequestId
    session: SessionId
    reason: str

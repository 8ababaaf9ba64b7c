"""What a replica tells the router actor of itself."""

from dataclasses import dataclass
from enum import StrEnum

from policies.kv_events import EventBatch, Snapshot
from policies.sessions import LastTurn
from policies.types import ReplicaState, RequestId


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster."""

    node: str
    is_head: bool


class Outcome(StrEnum):
    """How a turn ended."""

    ANSWERED = "answered"
    FAILED = "failed"
    """With an error, of vLLM's or another."""
    ABORTED = "aborted"
    """By its client, or by a gateway's limit of time."""
    LOST = "lost"
    """Its replica or its gateway died: nobody told of its end."""
    REFUSED = "refused"
    """By the router, as its session found no place among those that run."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn whose HTTP exchange is over, however it ended.

    Tokens are sums over what the engine made of it, `ttft_s` is None if there was no first token.
    `e2e_s` is from its arrival at the replica, as `ttft_s` is.
    """

    request: RequestId
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: float | None
    e2e_s: float | None = None
    outcome: Outcome = Outcome.ANSWERED


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What is new since the last report.

    `node` is where the replica runs. `is_measured` says whether the state's prefill rate is more
    than a guess. `cpu_tokens` of KV fit in its CPU memory, and `shared_tokens` in the tier that all
    share; 0 where there is none, or none came from there yet.
    `turns` are all that run here, `first_tokens` those whose prefill is done now. KV events come as
    a `batch`, or where the router asked for it as a `snapshot` in their place, with the
    `last_turns` of the sessions served here, whose `at_s` is relative to now. Both are None where
    there was no event.
    """

    state: ReplicaState
    node: Node
    block_size: int
    is_measured: bool
    cpu_tokens: int
    shared_tokens: int
    turns: frozenset[RequestId]
    first_tokens: tuple[RequestId, ...]
    ends: tuple[TurnEnd, ...]
    snapshot: Snapshot | None
    batch: EventBatch | None
    last_turns: tuple[LastTurn, ...] = ()

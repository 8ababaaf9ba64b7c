"""What a replica tells the router actor of itself."""

from dataclasses import dataclass

from policies.kv_events import EventBatch, Snapshot
from policies.types import ReplicaState, RequestId


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A turn whose HTTP exchange is over, however it ended.

    Tokens are sums over what the engine made of it, `ttft_s` is None if there was no first token.
    """

    request: RequestId
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft_s: float | None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What is new since the last report.

    `first_tokens` are turns whose prefill is done. KV events come as a `batch`, or where the router
    asked for it as a `snapshot` in their place; both are None where there were none.
    """

    state: ReplicaState
    block_size: int
    first_tokens: tuple[RequestId, ...]
    ends: tuple[TurnEnd, ...]
    snapshot: Snapshot | None
    batch: EventBatch | None

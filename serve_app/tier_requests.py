"""What the shared tier knows of vLLM's requests."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from vllm.v1.kv_offload.base import OffloadKey, ReqContext, ScheduleEndContext


@dataclass(slots=True)
class TierRequest:
    """When a request used its blocks, how long it waits for them, and how fast it's computed."""

    context: ReqContext
    began_ns: int = field(default_factory=time.time_ns)
    asked_s: float | None = None
    """Since when it waits for lookups, and then for what they found."""
    computed_from: float = inf
    """The position of the first block that was in no memory of its replica."""
    prompt_ends_at: int = 0
    """The position of the prompt's last block."""
    keys: set[OffloadKey] = field(default_factory=set)
    """Those looked up without an answer at once."""
    ends_at: OffloadKey | None = None
    """The first block that was not there."""
    scheduled_s: float | None = None
    computed_s: float = 0.0
    computed: int = 0

    def used_at_ns(self, key: OffloadKey) -> int:
        """Return when a block was used last: the later in the prompt, the earlier.

        A block is of no use without those before it, so they must not go first.
        """
        return self.began_ns - 1000 * (self.context.get_offload_key_position(key) or 0)

    def all_used_at_ns(self) -> dict[bytes, int]:
        """Return the same for all its blocks so far, in whatever tier they are."""
        return {bytes(key): self.used_at_ns(key) for key in _positions(self.context)}

    def note_asked(self, key: OffloadKey) -> None:
        """Note that a block is asked for here, as it's in no memory of the replica."""
        if position := self.context.get_offload_key_position(key):
            self.computed_from = min(self.computed_from, position)

    def waited_s(self, now_s: float) -> float:
        """Return how long it has waited, which begins with the first such question."""
        if self.asked_s is None:
            self.asked_s = now_s
        return now_s - self.asked_s

    def note_scheduled(self, now_s: float) -> None:
        """Note that it's computed from now on, and waits no longer; the answer has no block yet."""
        self.scheduled_s, self.asked_s = now_s, None
        self.prompt_ends_at = max(_positions(self.context).values(), default=0)

    def note_stored(self, keys: Iterable[OffloadKey], now_s: float) -> None:
        """Note that blocks are stored, as they are once they're computed.

        Those before the first that was asked for were in GPU memory all the time. Those of the
        answer come one token at a time, and so tell nothing of how fast a prompt is computed.
        """
        positions = (self.context.get_offload_key_position(key) or 0 for key in keys)
        computed = sum(
            self.computed_from <= position <= self.prompt_ends_at for position in positions
        )
        if computed and self.scheduled_s is not None:
            self.computed_s = now_s - self.scheduled_s
            self.computed += computed


class TierRequests:
    """The requests that are not over."""

    def __init__(self) -> None:
        self._requests: dict[str, TierRequest] = {}

    def begin(self, context: ReqContext) -> None:
        """Know of a request from now on."""
        self._requests[context.req_id] = TierRequest(context)

    def of(self, context: ReqContext) -> TierRequest:
        """Return what is known of a request: nothing if it's over, with jobs still to come."""
        return self._requests.get(context.req_id) or TierRequest(context)

    def end_step(self, context: ScheduleEndContext, now_s: float) -> list[TierRequest]:
        """Note who was scheduled first in a step, and who lost its place; return the former."""
        new = [self._requests[req_id] for req_id in context.new_req_ids if req_id in self._requests]
        for request in new:
            request.note_scheduled(now_s)
        for req_id in context.preempted_req_ids:
            if preempted := self._requests.get(req_id):
                preempted.scheduled_s = preempted.asked_s = None
        return new

    def end(self, context: ReqContext) -> TierRequest | None:
        """Forget a request; return what was known of it."""
        return self._requests.pop(context.req_id, None)


def _positions(context: ReqContext) -> dict[OffloadKey, int]:
    """Return where each block ends, in tokens; vLLM gives them only one by one."""
    return context._offload_key_positions

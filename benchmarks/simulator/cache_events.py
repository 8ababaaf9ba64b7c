"""What a simulated engine says of its caches, in the words of `policies.kv_events`."""

from collections.abc import Sequence
from typing import cast

from benchmarks.simulator.turn import Turn
from policies.kv_events import EngineHash, Event, Removed, Stored
from policies.types import BlockHash, Tier


class CacheEvents:
    """Events since they were last taken. An engine's name of a block is the block's own hash."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def take(self) -> list[Event]:
        """Return what happened since the last call."""
        events, self._events = self._events, []
        return events

    def store(self, tier: Tier, turn: Turn, new: list[BlockHash]) -> None:
        """Say that consecutive blocks of a prompt are in a tier now."""
        if not new:
            return
        hashes = turn.request.hashes
        start = hashes.index(new[0])
        self._events.append(
            Stored(
                tier=tier,
                root=turn.root,
                parent=EngineHash(hashes[start - 1]) if start else None,
                engine_hashes=_names(new),
                contents=turn.contents[start : start + len(new)].tolist(),
            )
        )

    def remove(self, tier: Tier, blocks: Sequence[BlockHash]) -> None:
        """Say that blocks left a tier."""
        if blocks:
            self._events.append(Removed(tier, _names(blocks)))


def _names(blocks: Sequence[BlockHash]) -> Sequence[EngineHash]:
    return cast("Sequence[EngineHash]", blocks)

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

    def store(self, tier: Tier, turn: Turn, new: Sequence[BlockHash]) -> None:
        """Say that blocks of a turn, in their order, are in a tier now: an event for each run.

        In the shared one nothing may be known of the block before them: their root is its hash.
        """
        is_shared = tier is Tier.SHARED
        for run in turn.runs(new):
            before = turn.blocks[run.start - 1] if run.start else None
            self._events.append(
                Stored(
                    tier=tier,
                    root=before if before is not None and is_shared else turn.root,
                    parent=EngineHash(before) if before is not None and not is_shared else None,
                    engine_hashes=_names(turn.blocks[run.start : run.stop]),
                    contents=turn.contents[run.start : run.stop].tolist(),
                )
            )

    def remove(self, tier: Tier, blocks: Sequence[BlockHash]) -> None:
        """Say that blocks left a tier."""
        if blocks:
            self._events.append(Removed(tier, _names(blocks)))


def _names(blocks: Sequence[BlockHash]) -> Sequence[EngineHash]:
    return cast("Sequence[EngineHash]", blocks)

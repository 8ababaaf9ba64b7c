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
        """Say that blocks of a turn, in their order, are in a tier now: an event for each run.

        In the shared one nothing may be known of the block before a run: its root is that hash.
        """
        hashes = [*turn.request.hashes, *turn.answer] if new else []
        told = 0
        while told < len(new):
            start = hashes.index(new[told])
            run = _run(hashes[start:], new[told:])
            before = hashes[start - 1] if start else None
            is_shared = tier is Tier.SHARED
            self._events.append(
                Stored(
                    tier=tier,
                    root=before if before is not None and is_shared else turn.root,
                    parent=None if before is None or is_shared else EngineHash(before),
                    engine_hashes=_names(run),
                    contents=turn.contents[start : start + len(run)].tolist(),
                )
            )
            told += len(run)

    def remove(self, tier: Tier, blocks: Sequence[BlockHash]) -> None:
        """Say that blocks left a tier."""
        if blocks:
            self._events.append(Removed(tier, _names(blocks)))


def _run(hashes: list[BlockHash], new: list[BlockHash]) -> list[BlockHash]:
    """Return what both begin with."""
    if hashes[: len(new)] == new:
        return new
    end = next(i for i, (one, other) in enumerate(zip(hashes, new, strict=False)) if one != other)
    return new[:end]


def _names(blocks: Sequence[BlockHash]) -> Sequence[EngineHash]:
    return cast("Sequence[EngineHash]", blocks)

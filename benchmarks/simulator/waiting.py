"""A request that an engine has not taken yet, and what it waits for."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.simulator.turn import Turn
from policies.types import BlockHash


@dataclass(slots=True)
class Waiting:
    """It came at `since_s`, when the engine had spent `prefilling_s` on prefills.

    It waits for prefills, for blocks of the shared tier, of which `fetched` came by now, and apart
    from these for memory.
    """

    turn: Turn
    since_s: float
    prefilling_s: float
    fetched: set[BlockHash] = field(default_factory=set)
    fetching: bool = False
    may_fetch: bool = True
    fetch_s: float = 0.0
    _fetch_began_at_s: float = 0.0
    _fetch_prefilling_s: float = 0.0

    def begin_fetch(self, now_s: float, prefilling_s: float) -> None:
        """Wait for blocks from the shared tier."""
        self.fetching = True
        self._fetch_began_at_s, self._fetch_prefilling_s = now_s, prefilling_s

    def end_fetch(self, blocks: Iterable[BlockHash], now_s: float, prefilling_s: float) -> None:
        """Wait for them no more."""
        self.fetching = False
        self.fetched.update(blocks)
        waited_s = now_s - self._fetch_began_at_s
        self.fetch_s += waited_s - (prefilling_s - self._fetch_prefilling_s)

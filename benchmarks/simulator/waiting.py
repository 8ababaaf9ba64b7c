"""A request that an engine has not taken yet, and what it waits for."""

from dataclasses import dataclass

from benchmarks.simulator.turn import Turn


@dataclass(slots=True)
class Waiting:
    """It came at `since_s`, when the engine had spent `prefilling_s` on prefills.

    It waits for prefills, for what is fetched from the shared tier, of which it has that from
    block `fetched_from` on, and apart from these for memory.
    """

    turn: Turn
    since_s: float
    prefilling_s: float
    fetched_from: int | None = None
    fetching: bool = False
    fetch_s: float = 0.0
    _fetch_began_at_s: float = 0.0
    _fetch_prefilling_s: float = 0.0

    def begin_fetch(self, now_s: float, prefilling_s: float) -> None:
        """Wait for blocks from the shared tier."""
        self.fetching = True
        self._fetch_began_at_s, self._fetch_prefilling_s = now_s, prefilling_s

    def end_fetch(self, start: int, now_s: float, prefilling_s: float) -> None:
        """Have them, from block `start` on."""
        self.fetching = False
        waited_s = now_s - self._fetch_began_at_s
        self.fetch_s += waited_s - (prefilling_s - self._fetch_prefilling_s)
        self.fetched_from = start if self.fetched_from is None else min(start, self.fetched_from)

"""What is to happen when, on a virtual clock."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from benchmarks.simulator.engine import Engine
from benchmarks.simulator.turn import Turn


@dataclass(frozen=True, slots=True)
class Wake:
    """An engine has something to do, unless it has changed its plans since."""

    engine: Engine
    at_s: float


@dataclass(frozen=True, slots=True)
class Unpark:
    """A request has waited at the router as long as it may."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A client sends a request again that was turned away."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Tick:
    """A second has passed."""


Item = Turn | Wake | Unpark | Retry | Tick
"""A turn is due when its client sends it."""


class Agenda:
    """Items by time; those of one time in the order in which they were put there."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int, Item]] = []
        self._order = count()

    def put(self, at_s: float, item: Item) -> None:
        """Add an item."""
        heappush(self._items, (at_s, next(self._order), item))

    def until(self, end_s: float) -> Iterator[tuple[float, Item]]:
        """Yield what is due by `end_s`, and what is put there meanwhile."""
        while self._items and self._items[0][0] <= end_s:
            at_s, _, item = heappop(self._items)
            yield at_s, item

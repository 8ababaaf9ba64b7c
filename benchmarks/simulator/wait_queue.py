"""The requests that an engine has not taken yet."""

from collections import deque

from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.progress import Admitted
from benchmarks.simulator.running import Running
from benchmarks.simulator.shared_link import Fetched, SharedLink
from benchmarks.simulator.turn import Turn
from benchmarks.simulator.waiting import Waiting


class WaitQueue:
    """First come, first served, but for those that wait for the shared tier.

    `prefilling_s` are the seconds that the engine has spent on prefills so far.
    """

    def __init__(self, memory: KvMemory, shared: SharedLink | None) -> None:
        self._memory = memory
        self._shared = shared
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, turn: Turn, now_s: float, prefilling_s: float) -> None:
        """Let a request wait."""
        self._waiting.append(Waiting(turn, now_s, prefilling_s))

    def take(self, now_s: float, prefilling_s: float) -> tuple[Admitted, Running] | None:
        """Take the first request that waits for nothing but memory, if there is enough."""
        for place, waiting in enumerate(self._waiting):
            if waiting.fetching:
                continue
            if waiting.may_fetch and self._fetch(waiting, now_s, prefilling_s):
                continue
            if taken := self._memory.take(waiting, now_s):
                del self._waiting[place]
                return _admitted(waiting, taken, now_s, prefilling_s), taken
            return None
        return None

    def end_fetch(self, fetched: Fetched, now_s: float, prefilling_s: float) -> None:
        """Let a request go on whose blocks came from the shared tier."""
        turn, blocks = fetched.transfer.turn, fetched.transfer.blocks
        waiting = next(one for one in self._waiting if one.turn is turn)
        waiting.end_fetch(blocks, now_s, prefilling_s)
        waiting.may_fetch = fetched.fits  # else it's computed, as if the tier had nothing

    def _fetch(self, waiting: Waiting, now_s: float, prefilling_s: float) -> bool:
        """Begin to fetch what only the shared tier has of a prompt; False if there is nothing."""
        if self._shared is None or not self._shared.fetch(waiting.turn, now_s):
            return False
        waiting.begin_fetch(now_s, prefilling_s)
        return True


def _admitted(waiting: Waiting, taken: Running, now_s: float, prefilling_s: float) -> Admitted:
    prefills_s = prefilling_s - waiting.prefilling_s
    memory_s = now_s - waiting.since_s - prefills_s - waiting.fetch_s
    return Admitted(taken.turn, taken.hit, prefills_s, memory_s, waiting.fetch_s)

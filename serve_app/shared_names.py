"""What an engine's events said of the shared tier, of blocks that the engine met itself."""

from collections.abc import Iterable

from policies.kv_events import EngineHash

PENDING_BATCHES = 1000
"""How long a name found in the shared tier is kept until the block is in GPU memory: as long as
it may take to fetch it."""


class SharedNames:
    """Names of blocks there: `known` ones, which the engine also has or had just now, and others.

    Those others were found there by a lookup, and mean nothing until the engine read the blocks.
    """

    def __init__(self) -> None:
        self.known: dict[EngineHash, None] = {}
        self._found: dict[EngineHash, int] = {}

    def add(self, names: Iterable[EngineHash]) -> None:
        """Note blocks that are known, too."""
        self.known.update(dict.fromkeys(names))

    def find(self, names: Iterable[EngineHash], batch: int) -> None:
        """Note blocks that are not known, in an engine's `batch`-th batch."""
        for name in names:
            self._found.pop(name, None)  # so that the first are the next to expire
            self._found[name] = batch

    def learn(self, name: EngineHash) -> bool:
        """Note that a block is known now; tell whether it is there."""
        found = self._found.pop(name, None) is not None
        if found:
            self.known[name] = None
        return found

    def discard(self, name: EngineHash) -> None:
        """Note that a block left the shared tier, or is known no longer."""
        self.known.pop(name, None)
        self._found.pop(name, None)

    def expire(self, batch: int) -> None:
        """Forget what was found too long ago and never read."""
        while self._found:
            name, found_in = next(iter(self._found.items()))
            if found_in > batch - PENDING_BATCHES:
                break
            del self._found[name]

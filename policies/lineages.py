"""Which session a prompt belongs to, by what it extends: agents do not always say."""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.types import BlockHash, SessionId


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where a lineage's last turn ended: the last of its `blocks` full blocks.

    `is_later` says that the turn extended another one: nobody else's is equal to it.
    """

    blocks: int
    block: BlockHash
    is_later: bool = False

    def is_in(self, hashes: Sequence[BlockHash]) -> bool:
        """Tell whether a prompt begins with that turn's full blocks."""
        return self.blocks <= len(hashes) and hashes[self.blocks - 1] == self.block


class Lineages:
    """The last turns of each session's lineages: its main thread, subagents, rewritten histories.

    At most `max_lineages` of a session are known, the most recent ones.
    """

    def __init__(self, max_lineages: int) -> None:
        self.max_lineages = max_lineages
        self._tails: dict[SessionId, tuple[_Tail, ...]] = {}
        self._owners: dict[BlockHash, SessionId] = {}

    def find(self, hashes: Sequence[BlockHash]) -> SessionId | None:
        """Return the session whose last turn, in one of its lineages, this prompt extends.

        At least one full block must have been added, unless a later turn is sent again: equal
        prompts may be two agents' first ones. Of several sessions, the one that shares most is
        meant.
        """
        owners = self._owners
        again = owners.get(hashes[-1]) if hashes else None
        if again and any(t.is_later and t.block == hashes[-1] for t in self._tails.get(again, ())):
            return again
        return next((owners[h] for h in reversed(hashes[:-1]) if h in owners), None)

    def extended_blocks(self, session: SessionId, hashes: Sequence[BlockHash]) -> int:
        """Return how many blocks of a prompt a session's last turns had."""
        tails = self._tails.get(session, ())
        return max((tail.blocks for tail in tails if tail.is_in(hashes)), default=0)

    def add_turn(self, session: SessionId, hashes: Sequence[BlockHash]) -> None:
        """Note a turn, which continues the lineages that it extends, or begins one."""
        if not hashes:
            return
        tails = self._tails.get(session, ())
        continued = [tail for tail in tails if tail.is_in(hashes)]
        others = [tail for tail in tails if tail not in continued]
        is_later = any(tail.is_later or tail.blocks < len(hashes) for tail in continued)
        kept = tuple(others[max(0, len(others) + 1 - self.max_lineages) :])
        self._disown(session, [tail for tail in tails if tail not in kept])
        self._tails[session] = (*kept, _Tail(len(hashes), hashes[-1], is_later))
        self._owners[hashes[-1]] = session

    def add_tail(self, session: SessionId, blocks: int, last_block: BlockHash) -> None:
        """Note a lineage by how its last turn ended, as nothing else of it is known."""
        tails = (*self._tails.get(session, ()), _Tail(blocks, last_block))
        self._disown(session, tails[: -self.max_lineages])
        self._tails[session] = tails[-self.max_lineages :]
        self._owners[last_block] = session

    def forget(self, session: SessionId) -> None:
        """Forget a session."""
        self._disown(session, self._tails.pop(session, ()))

    def _disown(self, session: SessionId, tails: Sequence[_Tail]) -> None:
        for tail in tails:
            if self._owners.get(tail.block) == session:
                del self._owners[tail.block]

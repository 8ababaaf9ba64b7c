"""The last turn of each session that a replica served, for a router that has forgotten them."""

import time
from collections import OrderedDict
from dataclasses import replace

from policies.sessions import LastTurn
from policies.types import BlockHash, SessionId
from serve_app.route_request import RouteRequest

MAX_SESSIONS = 5000


class LastTurns:
    """The sessions that began a turn here last, at most MAX_SESSIONS; one lineage of each."""

    def __init__(self) -> None:
        self._turns: OrderedDict[SessionId, LastTurn] = OrderedDict()

    def add(self, turn: RouteRequest) -> None:
        """Note a turn that begins."""
        placement = turn.placement
        if placement is None or placement.session is None:
            return
        hashes = turn.hashes
        last_block = BlockHash(int(hashes[-1])) if len(hashes) else None
        self._turns[placement.session] = LastTurn(
            placement.session,
            len(hashes),
            last_block,
            -(-turn.prompt_tokens // turn.block_size),
            time.monotonic(),
        )
        self._turns.move_to_end(placement.session)
        if len(self._turns) > MAX_SESSIONS:
            self._turns.popitem(last=False)

    def aged(self) -> tuple[LastTurn, ...]:
        """Return them, the oldest first, with their age in place of their time."""
        now_s = time.monotonic()
        return tuple(replace(turn, at_s=turn.at_s - now_s) for turn in self._turns.values())

"""What a replica remembers of the sessions it served."""

import numpy as np
import pytest

from policies.types import ReplicaId, RequestId, SessionId
from serve_app import last_turns
from serve_app.last_turns import LastTurns
from serve_app.route_request import Placement, RouteRequest


def _turn(session: str | None, *hashes: int) -> RouteRequest:
    blocks = np.array(hashes, np.uint64)
    turn = RouteRequest(RequestId("q"), "", None, blocks, len(hashes) * 4 + 1, 4)
    name = None if session is None else SessionId(session)
    turn.placement = Placement(ReplicaId("r1"), name, 0)
    return turn


def test_the_last_turn_of_each_session() -> None:
    """The session seen last at the end, with its age below zero."""
    turns = LastTurns()
    turns.add(_turn("s1", 1))
    turns.add(_turn("s2"))
    turns.add(_turn("s1", 1, 2**64 - 1))
    turns.add(_turn(None, 3))
    second, first = turns.aged()
    assert (second.session, second.full_blocks, second.last_block) == ("s2", 0, None)
    assert (first.session, first.full_blocks, first.last_block) == ("s1", 2, 2**64 - 1)
    assert first.blocks == 3
    assert second.at_s <= first.at_s <= 0


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those seen first are forgotten."""
    monkeypatch.setattr(last_turns, "MAX_SESSIONS", 2)
    turns = LastTurns()
    for session in ("s1", "s2", "s3"):
        turns.add(_turn(session))
    assert [turn.session for turn in turns.aged()] == ["s2", "s3"]

"""Which turns ended."""

import pytest

from policies.types import RequestId
from serve_app import ended_turns
from serve_app.ended_turns import EndedTurns


def test_those_that_ended_first_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that they take no more memory than is set; one that is told again takes none."""
    monkeypatch.setattr(ended_turns, "MAX_TURNS", 2)
    ended = EndedTurns()
    for name in ("q1", "q2", "q2", "q3"):
        ended.add(RequestId(name))
    assert [name for name in ("q1", "q2", "q3") if RequestId(name) in ended] == ["q2", "q3"]

"""What is remembered of sessions' turns."""

import pytest

from policies.misses import PromptTokens
from policies.tunables import Tunables
from policies.types import Park, ReplicaId, RequestId
from serve_app import session_turns
from serve_app.replica_report import TurnEnd
from serve_app.session_turns import SessionHistory
from serve_app.turn_records import TurnRecords
from tests.makers import make_decision, make_turn

R1 = ReplicaId("r1")


@pytest.fixture
def records() -> TurnRecords:
    return TurnRecords()


def place(records: TurnRecords, name: str, session: str, replica: str = "r1") -> None:
    """Let a turn arrive, wait for a second, and be placed."""
    turn = make_turn(name, 1, 2, session=session)
    turn.client = f"client-{name}"
    records.arrived(turn, 0.0)
    made = make_decision(turn, replica)
    wait = Park(30.0, (False, 0.0), "all are full", made.seconds, made.booking)
    records.decided(wait, Tunables(), 0.0)
    records.decided(made, Tunables(), 1.0)


def known(records: TurnRecords, session: str) -> SessionHistory:
    """Return the history of a session that has one."""
    found = records.sessions.get(session)  # type: ignore[arg-type]
    assert found
    return found


def names(records: TurnRecords, session: str) -> list[str]:
    """Return the turns that are remembered of a session, as their clients called them."""
    return [turn.http_id for turn in known(records, session).turns]


def end(name: str, cached_tokens: int = 4, ttft_s: float | None = 0.25) -> TurnEnd:
    """Return the end of a turn of ten tokens."""
    return TurnEnd(RequestId(name), 10, cached_tokens, 5, ttft_s)


def test_a_turn_from_its_decision_to_its_end(records: TurnRecords) -> None:
    """What was expected is known at once, what came of it at the end."""
    place(records, "q1", "s1")
    [turn] = known(records, "s1").turns
    assert (turn.http_id, turn.replica, turn.waited_s, turn.ttft_s) == ("http-q1", "r1", 1.0, None)
    tokens = PromptTokens(gpu_hit_tokens=4, first_seen_tokens=6)
    records.ended(end("q1"), R1, tokens)
    assert (turn.ttft_s, turn.cached_tokens, turn.output_tokens) == (0.25, 4, 5)
    assert turn.tokens == tokens


def test_time_at_a_lost_replica_is_no_waiting(records: TurnRecords) -> None:
    """A turn that was placed at once, and again when its replica died, waited for no room."""
    turn = make_turn("q1", 1, session="s1")
    records.arrived(turn, 0.0)
    for replica, now_s in (("r1", 0.0), ("r2", 20.0)):
        records.decided(make_decision(turn, replica), Tunables(), now_s)
    assert [one.waited_s for one in known(records, "s1").turns] == [0.0]


def test_sums_of_a_session(records: TurnRecords) -> None:
    """A turn without a first token leaves the last one's time, and its client is the last one's."""
    for name in ("q1", "q2"):
        place(records, name, "s1")
    records.ended(end("q1"), R1, None)
    records.ended(end("q2", cached_tokens=0, ttft_s=None), R1, None)
    history = known(records, "s1")
    assert (history.cached_tokens, history.ended_tokens, history.ttft_s) == (4, 20, 0.25)
    assert history.client == "client-q2"


def test_a_turn_that_is_decided_on_again_is_one_turn(records: TurnRecords) -> None:
    """Its replica was full or lost: where it went in the end counts."""
    place(records, "q1", "s1", "r1")
    place(records, "q2", "s1", "r1")
    place(records, "q1", "s1", "r2")
    assert [turn.replica for turn in known(records, "s1").turns] == ["r2", "r1"]
    records.ended(end("q1"), R1, None)
    assert known(records, "s1").turns[0].ttft_s == 0.25


def test_an_end_counts_once(records: TurnRecords) -> None:
    """A report may be sent twice, and of a turn that nobody heard of."""
    place(records, "q1", "s1")
    for name in ("q1", "q1", "q2"):
        records.ended(end(name), R1, None)
    assert known(records, "s1").ended_tokens == 10


def test_a_turn_that_ended_is_no_new_one(records: TurnRecords) -> None:
    """Its gateway took its replica for lost, and asked again before that end was heard of."""
    place(records, "q1", "s1", "r1")
    records.ended(end("q1"), R1, None)
    place(records, "q1", "s1", "r2")
    assert names(records, "s1") == ["http-q1"]


def test_a_long_session_forgets_its_first_turns(
    records: TurnRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says how many; one that ends only now changes nothing that is remembered."""
    monkeypatch.setattr(session_turns, "MAX_SESSION_TURNS", 2)
    for name in ("q1", "q2", "q3"):
        place(records, name, "s1")
    assert names(records, "s1") == ["http-q2", "http-q3"]
    assert known(records, "s1").forgotten_turns == 1
    records.ended(end("q1"), R1, None)
    assert known(records, "s1").ended_tokens == 0
    assert len(records.sessions) == 2


@pytest.mark.parametrize(("limit", "value"), [("MAX_TURNS", 3), ("MAX_SESSIONS", 2)])
def test_the_session_whose_last_turn_is_oldest_goes_first(
    records: TurnRecords, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Where there are too many turns or sessions."""
    monkeypatch.setattr(session_turns, limit, value)
    for name, session in (("q1", "s1"), ("q2", "s2"), ("q3", "s1"), ("q4", "s3")):
        place(records, name, session)
    assert records.sessions.get("s2") is None  # type: ignore[arg-type]
    assert names(records, "s1") == ["http-q1", "http-q3"]
    assert names(records, "s3") == ["http-q4"]
    assert len(records.sessions) == 3
    records.ended(end("q2"), R1, None)
    assert records.sessions.get("s2") is None  # type: ignore[arg-type]

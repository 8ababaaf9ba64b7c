"""Sessions have a home, count there between turns, and are known by what they said."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.residency import Residents
from policies.sessions import LastTurn, Sessions
from policies.types import BlockHash, ReplicaId, SessionId
from tests.policies.makers import make_hashes

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
S1, S2 = SessionId("session-1"), SessionId("session-12")


def make_sessions(max_sessions: int = 100, max_lineages: int = 2) -> Sessions:
    """Return no sessions; between turns a new one's weight halves each 16 s."""
    return Sessions(
        think_s=8,
        half_life_thinks=2,
        expiry_s=1000,
        max_sessions=max_sessions,
        max_lineages=max_lineages,
    )


def start(
    sessions: Sessions, session: SessionId = S1, *blocks: int, home: ReplicaId = R1, at_s: float = 0
) -> None:
    """Start a turn of these blocks."""
    sessions.start_turn(session, home, make_hashes(*blocks), len(blocks) + 1, at_s)


def test_a_session_counts_between_its_turns() -> None:
    """Its weight is 1 when a turn ended, halves with time, and is nothing in the end."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2, 3)
    sessions.end_turn(S1, 5)
    assert sessions.residents((), 5) == {R1: Residents(1, 4)}
    assert sessions.residents((), 21) == {R1: Residents(0.5, 2)}
    assert sessions.residents((), 500)[R1].sessions < 0.001


def test_expiring_changes_no_weight() -> None:
    """Sessions that still count do so after what is too old was let go."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2, 3)
    sessions.end_turn(S1, 5)
    sessions.expire(21)
    assert sessions.residents((), 21) == {R1: Residents(0.5, 2)}
    sessions.expire(1006)
    assert sessions.residents((), 1006) == {}


def test_a_session_is_no_resident_during_its_turns() -> None:
    """Its requests are load, so it is not counted twice; one that goes on elsewhere counts."""
    sessions = make_sessions()
    start(sessions, S1, 1)
    assert sessions.residents((), 0) == {}
    sessions.end_turn(S1, 0)
    start(sessions, S2, 2)
    sessions.end_turn(S2, 0)
    assert sessions.residents({(S1, R1)}, 0) == {R1: Residents(1, 2)}
    assert sessions.residents({(S1, R2), (S2, R1)}, 0) == {R1: Residents(1, 2)}


def test_weights_add_up() -> None:
    """A replica's residents are the sums over its sessions."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2, 3)
    sessions.end_turn(S1, 0)
    start(sessions, S2, 2, at_s=16)
    sessions.end_turn(S2, 16)
    assert sessions.residents((), 16) == {R1: Residents(1.5, 4)}


def test_a_moved_session_claims_nothing_where_it_was() -> None:
    """The last turn's home is the only one."""
    sessions = make_sessions()
    start(sessions, S1, 1)
    sessions.end_turn(S1, 0)
    start(sessions, S1, 1, 2, home=R2)
    sessions.end_turn(S1, 0)
    assert sessions.residents((), 0) == {R2: Residents(1, 3)}


def test_slow_thinkers_count_for_longer() -> None:
    """A session's mean think time follows the pauses after its turns."""
    sessions = make_sessions()
    start(sessions, S1, 1)
    sessions.end_turn(S1, 5)
    start(sessions, S1, 1, 2, at_s=115)
    known = sessions.get(S1)
    assert known
    assert known.turns == 2
    assert known.think_s == pytest.approx(8 + 0.3 * 102)
    start(sessions, S1, 1, 3, at_s=900)
    known = sessions.get(S1)
    assert known
    assert known.think_s == pytest.approx(38.6), "no turn had ended since"


def test_the_fastest_thinker_is_not_forgotten_at_once() -> None:
    """Turns without pauses leave a half-life of two seconds at least."""
    sessions = make_sessions()
    for turn in range(100):
        start(sessions, S1, turn)
        sessions.end_turn(S1, 0)
    assert sessions.residents((), 2) == {R1: Residents(0.5, 1)}


def test_lineage() -> None:
    """A prompt belongs to the session whose last turn it extends, and to no other."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2)
    assert sessions.lineages.find(make_hashes(1, 2, 3)) == S1
    assert sessions.lineages.find(make_hashes(1, 2)) is None, (
        "as this may be another agent's first prompt"
    )
    assert sessions.lineages.find(make_hashes(1, 3, 2)) is None
    assert sessions.lineages.find([]) is None
    start(sessions, S1, 1, 2, 3)
    assert sessions.lineages.find(make_hashes(1, 2, 4)) is None, "as that turn was not the last"
    assert sessions.lineages.find(make_hashes(1, 2, 3, 4)) == S1


def test_a_later_turn_that_is_sent_again() -> None:
    """It belongs to its session, as nobody else's is equal to it."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2)
    start(sessions, S1, 1, 2, 3)
    assert sessions.lineages.find(make_hashes(1, 2, 3)) == S1
    start(sessions, S1, 1, 2, 3)
    assert sessions.lineages.find(make_hashes(1, 2, 3)) == S1, "and once more"


def test_the_longest_lineage_wins() -> None:
    """Where a prompt extends two sessions it belongs to the one it shares more with."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2)
    start(sessions, S2, 1, 2, 3)
    assert sessions.lineages.find(make_hashes(1, 2, 3, 4)) == S2
    assert sessions.lineages.find(make_hashes(1, 2, 4, 4)) == S1


def test_several_lineages() -> None:
    """A session's main thread and its subagent are both known, the longest unused is dropped."""
    sessions = make_sessions()
    start(sessions, S1, 1, 2)
    start(sessions, S1, 5)
    start(sessions, S1, 1, 2, 3)
    assert sessions.lineages.find(make_hashes(5, 6)) == S1
    assert sessions.lineages.find(make_hashes(1, 2, 3, 4)) == S1
    start(sessions, S1, 7)
    assert sessions.lineages.find(make_hashes(5, 6)) is None
    assert sessions.lineages.extended_blocks(S1, make_hashes(1, 2, 3, 4)) == 3
    assert sessions.lineages.extended_blocks(S1, make_hashes(7)) == 1
    assert sessions.lineages.extended_blocks(S1, make_hashes(1, 2)) == 0
    assert sessions.lineages.extended_blocks(S2, make_hashes(7)) == 0


def test_a_lineage_taken_over() -> None:
    """Forgetting a session leaves a lineage to the one that took it over."""
    sessions = make_sessions(max_sessions=1)
    start(sessions, S1, 1)
    start(sessions, S2, 1)
    assert sessions.get(S1) is None
    assert sessions.lineages.find(make_hashes(1, 2)) == S2


def test_a_prompt_without_a_full_block() -> None:
    """It has no lineage, but its session counts."""
    sessions = make_sessions()
    start(sessions)
    sessions.end_turn(S1, 0)
    assert sessions.residents((), 0) == {R1: Residents(1, 1)}


def test_sessions_are_forgotten() -> None:
    """The longest unseen goes when there are too many; all go that were not seen for too long."""
    sessions = make_sessions(max_sessions=2)
    start(sessions, S1, 1)
    start(sessions, S2, 2, at_s=1)
    sessions.end_turn(S1, 2)
    start(sessions, SessionId("s3"), 3, at_s=3)
    assert sessions.get(S2) is None
    assert sessions.lineages.find(make_hashes(2, 2)) is None
    assert sessions.residents((), 3)[R1].sessions < 1, "only the first one is between turns"
    assert len(sessions) == 2
    sessions.expire(1002)
    assert sessions.get(S1)
    sessions.expire(1002.5)
    assert sessions.get(S1) is None
    assert sessions.lineages.find(make_hashes(1, 2)) is None
    assert len(sessions) == 1
    sessions.end_turn(S1, 2000)
    assert len(sessions) == 1


@dataclass
class ModelSession:
    """One session, as plainly as can be; lineages are whole prompts."""

    home: ReplicaId
    seen_at_s: float
    blocks: int
    prompts: list[tuple[int, ...]]


PROMPTS = [(*bits, 0) for bits in product((0, 1), repeat=4)]
prompts = st.lists(st.integers(0, 1), max_size=4).map(tuple)
turns = st.tuples(
    st.sampled_from([S1, S2, SessionId("s3")]),
    st.sampled_from([R1, R2]),
    prompts,
    st.sampled_from([0.0, 4.0, 30.0, 600.0]),
    st.booleans(),
)


@given(st.lists(turns, max_size=30))
def test_any_history(
    history: Sequence[tuple[SessionId, ReplicaId, tuple[int, ...], float, bool]],
) -> None:
    """After any turns, homes, claims, lineages and what is forgotten are as plain dicts say."""
    sessions, model, now_s = make_sessions(max_sessions=2), dict[SessionId, ModelSession](), 0.0
    for session, home, prompt, pause_s, ends in history:
        now_s += pause_s
        sessions.expire(now_s)
        model = {s: known for s, known in model.items() if now_s - known.seen_at_s <= 1000}
        start(sessions, session, *prompt, home=home, at_s=now_s)
        known = model.pop(session, ModelSession(home, now_s, 0, []))
        kept = [p for p in known.prompts if prompt[: len(p)] != p] if prompt else known.prompts
        kept = [*kept, prompt][-2:] if prompt else kept
        model[session] = ModelSession(home, now_s, len(prompt) + 1, kept)
        model = dict(list(model.items())[-2:])
        if ends:
            sessions.end_turn(session, now_s)
        assert len(sessions) == len(model)
        homes = {s: found.replica for s in model if (found := sessions.get(s))}
        assert homes == {s: known.home for s, known in model.items()}
        if ends:
            resident = sessions.residents((), now_s)
            assert resident[home].sessions > 0.999
            assert resident[home].blocks > len(prompt) + 0.999
        for known_session, known in model.items():
            for prompt in PROMPTS:
                lengths = [len(p) for p in known.prompts if prompt[: len(p)] == p]
                extended = sessions.lineages.extended_blocks(known_session, make_hashes(*prompt))
                assert extended == max(lengths, default=0)
        _check_lineages(sessions, model)


def _check_lineages(sessions: Sessions, model: dict[SessionId, ModelSession]) -> None:
    """Whatever is found is a session that the prompt extends."""
    for prompt in PROMPTS:
        found = sessions.lineages.find(make_hashes(*prompt))
        if found is not None:
            assert any(prompt[: len(p)] == p for p in model[found].prompts)


def test_hashes_are_compared_whole() -> None:
    """A session is found by its exact block hash."""
    sessions = make_sessions()
    sessions.start_turn(S1, R1, [BlockHash(12)], 1, 0)
    assert sessions.lineages.find([BlockHash(1), BlockHash(2)]) is None
    assert sessions.lineages.find([BlockHash(12), BlockHash(2)]) == S1


def last_turn(session: SessionId, at_s: float) -> LastTurn:
    """Return what a replica remembers of a session of one block."""
    return LastTurn(session, 1, make_hashes(9)[0], 2, at_s)


def test_no_more_is_resumed_than_may_be_known() -> None:
    """Those seen last, whichever replica tells of them first; and they are let go in time."""
    sessions = make_sessions(max_sessions=3)
    start(sessions, S1, 1, at_s=500)
    sessions.resume([last_turn(SessionId(f"a{at_s}"), at_s) for at_s in (900, 100)], R1)
    sessions.resume([last_turn(SessionId(f"b{at_s}"), at_s) for at_s in (200, 600)], R2)
    assert [session for session, _ in sessions] == [S1, "b600", "a900"]
    sessions.expire(1601)
    assert [session for session, _ in sessions] == ["a900"]


def test_a_turn_that_starts_again_is_no_other_one() -> None:
    """As when the replica of its choice had no place for it."""
    sessions = make_sessions()
    start(sessions, S1, 1)
    sessions.start_turn(S1, R2, make_hashes(1), 2, 1, is_again=True)
    known = sessions.get(S1)
    assert known
    assert (known.turns, known.replica) == (1, R2)

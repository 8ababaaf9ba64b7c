"""How many sessions may run follows from how many of their turns are late."""

from hypothesis import given
from hypothesis import strategies as st

from policies.session_limit import SessionLimit

MOST = 0.1


def make_limit(late: int, of: int, at_s: float = 0.0) -> SessionLimit:
    """Return one that saw so many turns get their first token, some of them too late."""
    limit = SessionLimit()
    see(limit, late, of, at_s)
    return limit


def see(limit: SessionLimit, late: int, of: int, at_s: float) -> None:
    """Let turns that began then get their first token at once."""
    for number in range(of):
        limit.first_token(at_s, at_s, late=number < late)


def grown(limit: SessionLimit, *, periods: int, from_s: float) -> list[int | None]:
    """Return the limit after each period in which others wait and nobody is late."""
    sizes = []
    for number in range(periods):
        limit.adapt(limit.sessions or 0, 5, MOST, from_s + 10 * number)
        sizes.append(limit.sessions)
    return sizes


def test_there_is_none_while_turns_come_in_time() -> None:
    """As many sessions run as come, few late turns or not."""
    limit = make_limit(late=13, of=100)
    limit.adapt(500, 0, MOST, 0)
    assert limit.sessions is None


def test_late_turns_set_one_below_what_runs() -> None:
    """Sessions that run are somewhat too many then."""
    limit = make_limit(late=14, of=100)
    limit.adapt(200, 0, MOST, 0)
    assert limit.sessions == 190


def test_few_turns_say_nothing() -> None:
    """An idle service's only turn may be late."""
    limit = make_limit(late=15, of=15)
    limit.adapt(2, 0, MOST, 0)
    assert limit.sessions is None


def test_old_turns_say_nothing() -> None:
    """What was late minutes ago is over."""
    limit = make_limit(late=100, of=100)
    limit.adapt(50, 0, MOST, 121)
    assert limit.sessions is None


def test_it_waits_for_what_its_change_brings() -> None:
    """Turns that began before it shrank do not make it shrink once more."""
    limit = make_limit(late=100, of=100)
    limit.adapt(200, 0, MOST, 5)
    for _ in range(100):
        limit.first_token(4, 12, late=True)
    limit.adapt(190, 0, MOST, 15)
    assert limit.sessions == 190
    see(limit, late=100, of=100, at_s=16)
    limit.adapt(190, 0, MOST, 25)
    assert limit.sessions == 180


def test_it_grows_slowly_where_turns_were_late() -> None:
    """From nine tenths of that number on; up to there it grows fast."""
    limit = make_limit(late=100, of=100)
    limit.adapt(1000, 0, MOST, 0)
    assert grown(limit, periods=2, from_s=10) == [959, 968]
    see(limit, late=100, of=100, at_s=30)
    limit.adapt(400, 5, MOST, 30)  # so many were left, and even they were late
    assert limit.sessions == 380
    see(limit, late=100, of=100, at_s=40)
    limit.adapt(300, 5, MOST, 40)
    assert grown(limit, periods=2, from_s=50) == [287, 289]


def test_it_is_gone_at_once_when_all_may_be_late() -> None:
    """An operator turned it off."""
    limit = make_limit(late=100, of=100)
    limit.adapt(200, 0, MOST, 0)
    limit.adapt(190, 5, 1.0, 1)
    assert limit.sessions is None


def test_it_stays_while_nobody_waits() -> None:
    """It is not known to be too small then."""
    limit = make_limit(late=100, of=100)
    limit.adapt(200, 0, MOST, 0)
    limit.adapt(185, 0, MOST, 10)
    assert limit.sessions == 190


def test_it_ends_when_it_is_not_needed() -> None:
    """Nobody waits, and a tenth of it is unused."""
    limit = make_limit(late=100, of=100)
    limit.adapt(200, 0, MOST, 0)
    limit.adapt(170, 1, MOST, 10)
    assert limit.sessions == 191
    limit.adapt(170, 0, MOST, 20)
    assert limit.sessions is None


def test_it_follows_the_number_of_replicas() -> None:
    """In proportion, as does the number from which on it grows slowly."""
    limit = make_limit(late=100, of=100)
    limit.fit(4, 0)
    limit.adapt(200, 0, MOST, 0)
    sizes = []
    for replicas in (8, 6, 6, 0, 6):
        limit.fit(replicas, 5)
        sizes.append(limit.sessions)
    assert sizes == [380, 285, 285, 285, 285]
    assert grown(limit, periods=2, from_s=10) == [287, 289]


def test_turns_of_another_fleet_say_nothing() -> None:
    """Those that waited for the replicas that came now would make it shrink at once."""
    limit = make_limit(late=100, of=100)
    limit.fit(1, 0)
    limit.adapt(200, 0, MOST, 0)
    see(limit, late=100, of=100, at_s=8)
    limit.fit(2, 9)
    for _ in range(100):
        limit.first_token(8, 10, late=True)
    limit.adapt(380, 0, MOST, 11)
    assert limit.sessions == 380


def test_a_fleet_that_grew_is_not_limited_for_what_was_late_before() -> None:
    """Whether all can run now is told by the turns that begin now."""
    limit = make_limit(late=100, of=100)
    limit.fit(1, 0)
    limit.fit(2, 1)
    limit.adapt(200, 0, MOST, 2)
    assert limit.sessions is None
    see(limit, late=100, of=100, at_s=11)
    limit.adapt(200, 0, MOST, 12)
    assert limit.sessions == 190


@given(
    st.lists(
        st.tuples(
            st.integers(0, 40),
            st.integers(0, 40),
            st.integers(0, 50),
            st.integers(0, 9),
            st.integers(0, 5),
        )
    )
)
def test_one_may_always_run(story: list[tuple[int, int, int, int, int]]) -> None:
    """Whatever comes late: a fleet that lets nobody in would never learn that it could."""
    limit = SessionLimit()
    for number, (late, in_time, running, waiting, replicas) in enumerate(story):
        see(limit, late, late + in_time, number * 10.0)
        limit.fit(replicas, number * 10.0)
        limit.adapt(running, waiting, MOST, number * 10.0)
        assert limit.sessions is None or limit.sessions >= 1

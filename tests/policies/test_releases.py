"""When memory comes free, by how long it was held."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.releases import HoldTimes, Release, wait_s


def make_hold_times(*holds_s: float) -> HoldTimes:
    """Return what these requests tell."""
    times = HoldTimes()
    for hold_s in holds_s:
        times.add(hold_s)
    return times


def test_few_tell_nothing() -> None:
    """Until there are enough, what is usual is expected."""
    assert make_hold_times(*[5.0] * 15).remaining_s(1.0, usual_s=8.0) == 8.0
    assert make_hold_times(*[5.0] * 16).remaining_s(1.0, usual_s=8.0) == 4.0


def test_long_ones_last_longer() -> None:
    """Of 18 short ones and 2 long ones, only these are left after a while."""
    times = make_hold_times(*[4.0] * 18, 40.0, 60.0)
    assert times.remaining_s(0.0, usual_s=8.0) == pytest.approx(8.6)
    assert times.remaining_s(4.0, usual_s=8.0) == pytest.approx(46.0)
    assert times.remaining_s(50.0, usual_s=8.0) == pytest.approx(10.0)
    assert times.remaining_s(70.0, usual_s=8.0) == 60.0, "as long again as the longest"


@given(
    st.lists(st.floats(0.0, 1000.0), min_size=16, max_size=600),
    st.floats(0.0, 1000.0),
)
def test_the_mean_of_recent_longer_ones(holds_s: list[float], held_s: float) -> None:
    """Whatever came before, the last 256 count."""
    recent = holds_s[-256:]
    longer = [hold_s - held_s for hold_s in recent if hold_s > held_s]
    expected_s = max(0.1, sum(longer) / len(longer)) if longer else max(recent)
    found_s = make_hold_times(*holds_s).remaining_s(held_s, usual_s=8.0)
    assert found_s == pytest.approx(expected_s, abs=1e-6)


releases = st.lists(
    st.builds(Release, st.floats(0.1, 100.0), st.integers(0, 50)), min_size=1, max_size=6
)


@given(releases, st.integers(1, 300), st.integers(0, 50))
def test_more_takes_longer(running: list[Release], missing: int, more: int) -> None:
    """No wait is longer than for all one after the other; what nobody releases is left over."""
    seconds, beyond = wait_s(running, missing)
    longer_s, more_beyond = wait_s(running, missing + more)
    assert 0 < seconds <= longer_s <= sum(one.remaining_s for one in running) + 1e-6
    assert beyond == max(0, missing - sum(one.blocks for one in running))
    assert more_beyond >= beyond

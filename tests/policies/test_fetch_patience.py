"""A slow tier costs next to nothing, whatever it does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fetch_patience import (
    EXTRA_RATIO,
    GRACE_S,
    MEASURED_CHUNKS,
    RESTS_S,
    UNMEASURED_S,
    PrefillPace,
    Rest,
    gives_up,
)


@given(
    chunk_s=st.floats(1e-5, 1),
    arrivals_s=st.lists(st.floats(0, 100), min_size=1, max_size=200),
    poll_s=st.floats(1e-3, 1e-2),
)
def test_a_prompt_takes_hardly_longer_than_without_the_tier(
    chunk_s: float, arrivals_s: list[float], poll_s: float
) -> None:
    """Whenever chunks arrive, waiting for them and computing the rest stays within the bound."""
    wanted = len(arrivals_s)
    now_s, loaded = 0.0, 0
    while loaded < wanted and not gives_up(now_s, loaded, wanted, chunk_s):
        now_s += poll_s
        loaded = sum(arrival_s <= now_s for arrival_s in arrivals_s)
        if now_s > 2 * wanted * chunk_s + 1:
            break
    ttft_s = now_s + (wanted - loaded) * chunk_s
    computing_s = wanted * chunk_s
    assert ttft_s <= computing_s + max(GRACE_S, EXTRA_RATIO * computing_s) + poll_s + 1e-6


@given(wanted=st.integers(1, 5000), chunk_s=st.floats(1e-5, 1), share=st.floats(0, 0.99))
def test_a_tier_faster_than_computing_is_waited_for(
    wanted: int, chunk_s: float, share: float
) -> None:
    """Steady progress at less than a chunk's prefill time per chunk is never given up."""
    for loaded in range(0, wanted, max(1, wanted // 50)):
        assert not gives_up(loaded * chunk_s * share, loaded, wanted, chunk_s)


def test_before_anything_was_computed_the_wait_is_bounded() -> None:
    """An engine that does not know its speed waits a fixed time."""
    assert PrefillPace().chunk_s is None
    assert not gives_up(UNMEASURED_S, 0, 10, None)
    assert gives_up(UNMEASURED_S + 0.01, 9, 10, None)


def test_recent_and_long_prompts_count_most() -> None:
    """The pace is seconds per chunk, and follows a change."""
    pace = PrefillPace()
    pace.measured(100, 1.0)
    assert pace.chunk_s == pytest.approx(0.01)
    pace.measured(MEASURED_CHUNKS - 1, 100.0)
    assert pace.chunk_s == pytest.approx(0.01)
    for _ in range(20):
        pace.measured(100, 3.0)
    assert pace.chunk_s == pytest.approx(0.03, rel=0.05)


def test_a_slow_tier_rests_longer_each_time_until_it_was_fast() -> None:
    """Its rests double up to a minute, don't add up, and begin short again."""
    rest = Rest()
    assert not rest.is_on(0)
    assert rest.begin(0) == RESTS_S[0]
    assert rest.begin(RESTS_S[0] / 2) is None
    assert rest.is_on(RESTS_S[0] / 2)
    assert not rest.is_on(RESTS_S[0])
    longest = [rest.begin(1000.0 * number) for number in range(1, 20)]
    assert longest[:2] == [2 * RESTS_S[0], 4 * RESTS_S[0]]
    assert longest[-1] == RESTS_S[1]
    rest.was_fast()
    assert rest.begin(10**6) == RESTS_S[0]

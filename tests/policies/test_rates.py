"""What a replica's speed is taken to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.rates import PREFILL_TOKENS_PER_S, Mean, PrefillRate


def test_a_mean_follows_what_is_measured() -> None:
    """After many equal samples the prior no longer counts."""
    mean = Mean(10.0)
    for _ in range(100):
        mean.add(2.0)
    assert mean.value == pytest.approx(2.0, rel=1e-3)


def test_a_rate_is_tokens_over_seconds() -> None:
    """Long samples weigh more than short ones."""
    rate = Mean(1000.0)
    for _ in range(100):
        rate.add(1000, 1.0)
        rate.add(1, 0.001)
    assert rate.value == pytest.approx(1000, rel=0.01)


def test_until_it_prefilled_the_prior_is_believed() -> None:
    """A new replica is as fast as is usual."""
    assert PrefillRate().tokens_per_s == PREFILL_TOKENS_PER_S


def test_prefills_side_by_side_share_the_replica() -> None:
    """Two that arrive together and are done after 1 s and 2 s took a second each."""
    rate = PrefillRate()
    for second in range(0, 200, 2):
        rate.add(1000, second, second + 1)
        rate.add(1000, second, second + 2)
    assert rate.tokens_per_s == pytest.approx(1000, rel=0.01)


def test_idle_time_does_not_count() -> None:
    """A replica that prefills a second in each hour is no slower for that."""
    rate = PrefillRate()
    for hour in range(100):
        rate.add(1000, hour * 3600, hour * 3600 + 1)
    assert rate.tokens_per_s == pytest.approx(1000, rel=0.01)


def test_a_few_tokens_say_nothing_of_a_rate() -> None:
    """A replica that was asked for one token at first is not slow."""
    rate = PrefillRate()
    rate.add(1, 0, 2.0)
    assert not rate.is_measured
    assert rate.tokens_per_s == PREFILL_TOKENS_PER_S


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0, 1e6), st.floats(0, 1e6))))
def test_rates_stay_positive(prefills: list[tuple[int, float, float]]) -> None:
    """Whatever clocks say, nobody divides by zero."""
    rate = PrefillRate()
    for tokens, one_s, other_s in prefills:
        rate.add(tokens, min(one_s, other_s), max(one_s, other_s))
    assert rate.tokens_per_s > 0

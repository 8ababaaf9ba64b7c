"""The cost of watching, by rounds whose costs are known."""

from dataclasses import replace

import pytest

from benchmarks.observing_figures import Round, cost, figures, likely
from benchmarks.onlookers import READ_S, SCRAPE_S


def _round(slowness: float = 1.0) -> Round:
    """Return a round in which a fast machine serves 5 turns/s, and one that takes so many times."""
    page_s, scrape_s, lasted_s = slowness * 0.02, slowness * 0.15, slowness * 4.0
    return Round(
        turns=10,
        plain_took_s=slowness * 3.0,
        watched_took_s=lasted_s,
        plain_s=slowness * 1.0,
        watched_s=slowness * 1.1,
        shared_s=slowness * 0.4 + lasted_s * (page_s / READ_S + scrape_s / SCRAPE_S),
        page_s=page_s,
        scrape_s=scrape_s,
    )


ROUND = _round()


def test_each_part_is_of_one_turn() -> None:
    """The page and scrapes come as often as their periods fit the turns that are served."""
    found = cost([ROUND, ROUND])
    assert found.plain == pytest.approx(100 + 20)  # what is shared serves both
    assert found.own == pytest.approx(10)
    assert found.page == pytest.approx(1000 * 0.02 / READ_S / 5)
    assert found.scrapes == pytest.approx(1000 * 0.15 / SCRAPE_S / 5)
    assert found.ratio == pytest.approx(1 + (10 + 2 + 2) / 120)


def test_a_slow_moment_counts_by_what_it_took() -> None:
    """Where all takes four times as long, spans cost the same share; who looks comes more often."""
    slow = cost([_round(4.0)])
    assert slow.own == pytest.approx(4 * cost([ROUND]).own)
    assert slow.page == pytest.approx(16 * cost([ROUND]).page)
    both = cost([ROUND, _round(4.0)])
    assert both.own / both.plain == pytest.approx(10 / 120)
    assert both.page == pytest.approx((slow.page + cost([ROUND]).page) / 2)


def test_what_is_likely_narrows_with_the_number_of_rounds() -> None:
    """Around the ratio: in a tenth of the rounds watching cost three times as much."""
    dear = replace(ROUND, watched_s=1.3)
    few, many = ([dear, *[ROUND] * 9] * times for times in (2, 40))
    widths = []
    for rounds in (few, many):
        low, high = likely(rounds)
        assert low < cost(rounds).ratio < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3


def test_people_read_the_parts_and_their_sum() -> None:
    """And how fast the services were side by side."""
    said = " ".join(figures([ROUND] * 3))
    for words in ("takes 120.0 ms", "10.0 ms more", "2.0 ms for the page", "1.117 of", "0.750 as"):
        assert words in said

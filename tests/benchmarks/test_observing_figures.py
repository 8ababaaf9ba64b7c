"""The cost of watching, by rounds whose costs are known."""

from dataclasses import replace

import pytest

from benchmarks.busy_clients import Answered
from benchmarks.observing_figures import (
    Round,
    Served,
    cost,
    figures,
    likely,
    side_by_side,
    throughput,
)
from benchmarks.onlookers import READ_S, SCRAPE_S

PAGE_S, SCRAPES_S = 0.02, 0.15


def _round(took_s: float = 4.0) -> Round:
    """Return a round of 20 turns, 100 ms each and 120 if watched, and 20 in what is shared."""
    looked_s = took_s * (PAGE_S / READ_S + SCRAPES_S / SCRAPE_S)
    return Round(
        plain=Served(Answered(12, 10.0), used_s=1.2),
        watched=Served(Answered(8, 7.5), used_s=0.96),
        took_s=took_s,
        shared_s=20 * 0.02 + looked_s,
        page_s=PAGE_S,
        scrape_s=SCRAPES_S,
    )


ROUND = _round()


def test_each_part_is_of_one_turn() -> None:
    """The page and scrapes come as often as their periods fit the turns that are served."""
    found = cost([ROUND, ROUND])
    assert found.plain == pytest.approx(100 + 20)  # what is shared serves both
    assert found.own == pytest.approx(20)
    assert found.page == pytest.approx(1000 * PAGE_S / READ_S / 5)
    assert found.scrapes == pytest.approx(1000 * SCRAPES_S / SCRAPE_S / 5)
    assert found.ratio == pytest.approx(1 + (20 + 2 + 2) / 120)


def test_a_slow_round_has_more_of_who_looks() -> None:
    """As they come by the clock; what a turn costs itself does not depend on that."""
    slow = cost([_round(16.0)])
    assert (slow.plain, slow.own) == pytest.approx((120, 20))
    assert (slow.page, slow.scrapes) == pytest.approx((8, 8))
    assert cost([ROUND, _round(16.0)]).page == pytest.approx((2 + 8) / 2)


def test_throughput_is_what_watching_leaves_of_a_machine() -> None:
    """Both services had 4 s of each processor for 20 turns, half of which 20 ms were added to."""
    assert side_by_side([ROUND, ROUND]) == pytest.approx(0.75)
    plain_ms = 200 - 10 - 2 - 2
    assert throughput([ROUND, ROUND], cores=1) == pytest.approx(plain_ms / (plain_ms + 24))
    plain_ms += 600
    assert throughput([ROUND, ROUND], cores=4) == pytest.approx(plain_ms / (plain_ms + 24))


def test_what_is_likely_narrows_with_the_number_of_rounds() -> None:
    """Around the figure: in a tenth of the rounds watching cost more."""
    dear = replace(ROUND, watched=Served(Answered(8, 5.0), used_s=1.2))
    few, many = ([dear, *[ROUND] * 9] * times for times in (2, 40))
    widths = []
    for rounds in (few, many):
        low, high = likely(rounds, side_by_side)
        assert low < side_by_side(rounds) < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3


def test_people_read_the_parts_of_a_turn_and_the_throughput() -> None:
    """With what is likely."""
    said = " ".join(figures([ROUND] * 3, cores=2))
    for words in ("takes 120.0 ms", "20.0 ms more", "2.0 ms for the page", "1.200 (1.200 to"):
        assert words in said
    for words in ("that leaves 0.941 (0.941 to", "were 0.750 (0.750 to"):
        assert words in said

"""What rounds of `benchmarks.observing` say of the cost of watching."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.onlookers import READ_S, SCRAPE_S

DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Round:
    """What it took to serve so many turns by each service; times are seconds of processors."""

    turns: int
    plain_took_s: float
    """From the first to the last of them, by a clock."""
    watched_took_s: float
    plain_s: float
    """Of what that service alone uses ..."""
    watched_s: float
    shared_s: float
    """... and of what both use."""
    page_s: float
    """Of what both use, for one answer to the page ..."""
    scrape_s: float
    """... and for one scrape."""

    @property
    def lasted_s(self) -> float:
        """How long turns were served, by a clock."""
        return max(self.plain_took_s, self.watched_took_s)


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of processor time, of one turn."""

    plain: float
    """A turn that nobody watches."""
    own: float
    """What a watched service's own processes do more: for spans and lines, and for who looks."""
    page: float
    """What the processes that services share do for the page that is open meanwhile ..."""
    scrapes: float
    """... and for the scrapes."""

    @property
    def ratio(self) -> float:
        """A watched turn by a plain one."""
        return 1 + (self.own + self.page + self.scrapes) / self.plain


def cost(rounds: Sequence[Round]) -> Cost:
    """Return what a turn costs, by all rounds together.

    The page and the scrapes cost as much per turn as fits the turns that this machine serves.
    """
    turns = sum(one.turns for one in rounds)
    page_s = sum(one.page_s * one.lasted_s for one in rounds) / READ_S / (2 * turns)
    scrapes_s = sum(one.scrape_s * one.lasted_s for one in rounds) / SCRAPE_S / (2 * turns)
    plain_s = sum(one.plain_s + one.shared_s / 2 for one in rounds) / turns
    own_s = sum(one.watched_s - one.plain_s for one in rounds) / turns
    return Cost(
        plain=1000 * (plain_s - page_s - scrapes_s),  # the page was open while both were served
        own=1000 * own_s,
        page=1000 * page_s,
        scrapes=1000 * scrapes_s,
    )


def likely(rounds: Sequence[Round]) -> tuple[float, float]:
    """Return between what the ratio of so many rounds lies nine times of ten (a bootstrap)."""
    rng = Random(0)  # noqa: S311
    drawn = [cost(rng.choices(rounds, k=len(rounds))).ratio for _ in range(DRAWS)]
    low, *_, high = statistics.quantiles(drawn, n=20)
    return low, high


def figures(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield lines for people."""
    found, (low, high) = cost(rounds), likely(rounds)
    yield f"a turn takes {found.plain:.1f} ms of processor time, and if watched"
    yield f"  {found.own:.1f} ms more in its service,"
    yield f"  {found.page:.1f} ms for the page in what services share, and"
    yield f"  {found.scrapes:.1f} ms for scrapes there:"
    yield f"{found.ratio:.3f} of a plain one ({low:.3f} to {high:.3f})"
    plain_s = sum(one.plain_took_s for one in rounds)
    watched_s = sum(one.watched_took_s for one in rounds)
    yield f"side by side, watched turns came {plain_s / watched_s:.3f} as fast as plain ones"

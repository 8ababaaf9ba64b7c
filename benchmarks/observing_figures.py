"""What rounds of `benchmarks.observing` say of the cost of watching."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.busy_clients import Answered
from benchmarks.onlookers import READ_S, SCRAPE_S

DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Served:
    """What one service did in a round."""

    answered: Answered
    used_s: float
    """Processor time of the processes that are that service's alone, in seconds."""


@dataclass(frozen=True, slots=True)
class Round:
    """Both services side by side; times are seconds of processors where not said otherwise."""

    plain: Served
    watched: Served
    took_s: float
    """By a clock, until the last turn was answered."""
    shared_s: float
    """Of what both use."""
    page_s: float
    """Of what both use, for one answer to the page ..."""
    scrape_s: float
    """... and for one scrape."""

    @property
    def turns(self) -> int:
        """How many both answered."""
        return self.plain.answered.turns + self.watched.answered.turns


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
    def added(self) -> float:
        """What watching adds."""
        return self.own + self.page + self.scrapes

    @property
    def ratio(self) -> float:
        """A watched turn by a plain one."""
        return 1 + self.added / self.plain


def throughput(rounds: Sequence[Round], cores: int) -> float:
    """Return the throughput of a watched service by that of one that nobody watches.

    That is where all of so many processors is in use: what watching adds to a turn is weighed by
    all that the machine has for one, engines and clients included.
    """
    turns = sum(one.turns for one in rounds)
    has_ms = 1000 * cores * sum(one.took_s for one in rounds) / turns
    found = cost(rounds)
    plain_ms = has_ms - found.added + found.own / 2  # half of the turns were watched
    return plain_ms / (plain_ms + found.added)


def side_by_side(rounds: Sequence[Round]) -> float:
    """Return the turns that the watched service served in time, by those of the other."""
    watched, plain = (sum(one.answered.in_time for one in side) for side in _sides(rounds))
    return watched / plain


def cost(rounds: Sequence[Round]) -> Cost:
    """Return what a turn costs, by all rounds together.

    The page and the scrapes cost as much per turn as fits the turns that this machine serves.
    """
    turns = sum(one.turns for one in rounds)
    page_s = sum(one.page_s * one.took_s for one in rounds) / READ_S / turns
    scrapes_s = sum(one.scrape_s * one.took_s for one in rounds) / SCRAPE_S / turns
    watched_s, plain_s = (
        sum(one.used_s for one in side) / sum(one.answered.turns for one in side)
        for side in _sides(rounds)
    )
    shared_s = sum(one.shared_s for one in rounds) / turns
    return Cost(
        plain=1000 * (plain_s + shared_s - page_s - scrapes_s),  # the page was open meanwhile
        own=1000 * (watched_s - plain_s),
        page=1000 * page_s,
        scrapes=1000 * scrapes_s,
    )


def likely(
    rounds: Sequence[Round], figure: Callable[[Sequence[Round]], float]
) -> tuple[float, float]:
    """Return between what a figure of so many rounds lies nine times of ten (a bootstrap)."""
    rng = Random(0)  # noqa: S311
    drawn = [figure(rng.choices(rounds, k=len(rounds))) for _ in range(DRAWS)]
    low, *_, high = statistics.quantiles(drawn, n=20)
    return low, high


def figures(rounds: Sequence[Round], cores: int) -> Iterator[str]:
    """Yield lines for people."""

    def told(figure: Callable[[Sequence[Round]], float]) -> str:
        low, high = likely(rounds, figure)
        return f"{figure(rounds):.3f} ({low:.3f} to {high:.3f})"

    found = cost(rounds)
    yield f"its engine apart, a turn takes {found.plain:.1f} ms of processor time, and if watched"
    yield f"  {found.own:.1f} ms more in its service,"
    yield f"  {found.page:.1f} ms for the page in what services share, and"
    yield f"  {found.scrapes:.1f} ms for scrapes there:"
    yield f"  {told(lambda some: cost(some).ratio)} of a plain one"
    yield f"that leaves {told(lambda some: throughput(some, cores))} of a plain one's throughput"
    yield f"side by side, watched turns were {told(side_by_side)} of plain ones"


def _sides(rounds: Sequence[Round]) -> tuple[list[Served], list[Served]]:
    """Return what the watched service did in each round, and what the other did."""
    return [one.watched for one in rounds], [one.plain for one in rounds]

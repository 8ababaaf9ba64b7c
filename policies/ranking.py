"""What each candidate costs, and who comes first: weights and tie-breaks are here only."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from policies.candidate import Candidate
from policies.scorers import SCORERS
from policies.tunables import Tunables
from policies.types import ReplicaId, ScorerSeconds

_TIE_DIGITS = 3
"""Costs that round to the same millisecond are ties."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A candidate and what it costs."""

    candidate: Candidate
    seconds: ScorerSeconds
    total_s: float

    @property
    def replica(self) -> ReplicaId:
        """The replica's id."""
        return self.candidate.replica

    def __str__(self) -> str:
        """Return the form in which reasons speak of it."""
        return f"{self.replica} ({self.total_s:.2f} s)"


def rank(candidates: Sequence[Candidate], tunables: Tunables, rng: Random) -> list[Scored]:
    """Return the candidates, the least weighted sum of seconds first.

    Ties go to the replica with fewest resident sessions, then to any.
    """
    ranked = []
    for candidate in candidates:
        seconds = {
            name: tunables.weights[name] * score(candidate, tunables)
            for name, score in SCORERS.items()
        }
        scored = Scored(candidate, seconds, sum(seconds.values()))
        residents = candidate.residents.sessions
        ranked.append((round(scored.total_s, _TIE_DIGITS), residents, rng.random(), scored))
    ranked.sort(key=lambda entry: entry[:3])
    return [scored for *_, scored in ranked]


def near_best(ranked: Sequence[Scored], margin_s: float) -> list[Scored]:
    """Return those that cost at most `margin_s` more than the first."""
    return [scored for scored in ranked if scored.total_s <= ranked[0].total_s + margin_s]

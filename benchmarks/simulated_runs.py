"""Results that `benchmarks.simulate` wrote, and what several seeds say together."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Self

import msgspec

from benchmarks.simulator.result import Result

OURS = "warmturn"
BOUNDS = ("oracle", "pooled-oracle")

Measure = Callable[[Result], float]


@dataclass(frozen=True, slots=True)
class Spread:
    """One measure over several seeds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return it; there must be at least one value."""
        return cls(median(values), min(values), max(values))


Curve = list[tuple[float, Spread]]
"""A measure by load, in ascending order."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Simulations, and the commands that repeat them."""

    commands: list[str]
    results: list[Result]

    @property
    def policies(self) -> list[str]:
        """Their policies, each once, in the order of the results."""
        return list(dict.fromkeys(one.policy for one in self.results))

    @property
    def peers(self) -> list[str]:
        """The policies that are neither ours nor the bound."""
        return [one for one in self.policies if base_name(one) not in (OURS, *BOUNDS)]

    @property
    def loads(self) -> list[float]:
        """Their loads, ascending."""
        return sorted({one.load for one in self.results})

    @property
    def seeds(self) -> list[int]:
        """Their seeds, ascending."""
        return sorted({one.seed for one in self.results})

    def of(
        self, policy: str, *, load: float | None = None, seed: int | None = None
    ) -> list[Result]:
        """Return the results of a policy, at one load and of one seed where that is given."""
        return [
            one
            for one in self.results
            if one.policy == policy and load in (None, one.load) and seed in (None, one.seed)
        ]

    @property
    def sizes(self) -> list[int]:
        """Their numbers of replicas, ascending."""
        return sorted({one.replicas for one in self.results})

    def of_size(self, replicas: int) -> "Runs":
        """Return those with so many replicas."""
        return Runs(self.commands, [one for one in self.results if one.replicas == replicas])

    def of_load(self, load: float) -> "Runs":
        """Return those of one load."""
        return Runs(self.commands, [one for one in self.results if one.load == load])

    def of_main_size(self) -> "Runs":
        """Return those with the number of replicas that most have."""
        [(replicas, _)] = Counter(one.replicas for one in self.results).most_common(1)
        return self.of_size(replicas)

    def of_most_sizes(self) -> "Runs":
        """Return those of the load that was simulated with most numbers of replicas."""
        by_load = [self.of_load(load) for load in self.loads]
        return max(by_load, key=lambda runs: len(runs.sizes))

    def curve(self, policy: str, measure: Measure) -> Curve:
        """Return a measure of one policy by load."""
        values: dict[float, list[float]] = {}
        for one in self.of(policy):
            values.setdefault(one.load, []).append(measure(one))
        return [(load, Spread.of(values[load])) for load in sorted(values)]


def base_name(policy: str) -> str:
    """Return a policy's name without its settings and label."""
    return policy.split(",")[0].split(":")[0]


def is_ours(policy: str) -> bool:
    """Tell whether it is this project's policy."""
    return base_name(policy) == OURS


def read_runs(sources: Iterable[str]) -> Runs:
    """Read result files; of one given as `label=file` the label is put behind its policies' names.

    Raises OSError where one can't be read, and ValueError where it holds no results of a
    simulation, or where there are none at all.
    """
    runs = Runs([], [])
    for source in sources:
        label, _, name = source.rpartition("=")
        path = Path(name)
        try:
            file = msgspec.json.decode(path.read_bytes(), type=_File)
        except msgspec.DecodeError as wrong:
            msg = f"{path}: {wrong}"
            raise ValueError(msg) from wrong
        runs.commands.append(file.command)
        runs.results.extend(
            replace(one, policy=f"{one.policy}, {label}") if label else one for one in file.results
        )
    if not runs.results:
        msg = "there are no results"
        raise ValueError(msg)
    return runs


@dataclass(frozen=True, slots=True)
class _File:
    command: str
    results: list[Result]

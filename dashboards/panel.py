"""What a dashboard is made of."""

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What the numbers of a panel are, as Grafana calls it."""

    NUMBER = "short"
    SECONDS = "s"
    RATIO = "percentunit"
    PER_SECOND = "cps"
    BYTES_PER_SECOND = "Bps"


@dataclass(frozen=True, slots=True)
class Query:
    """A query in PromQL and the legend of its lines.

    `empty_while` says when it returns nothing although all is well; None where it always returns
    something once turns were served.
    """

    expr: str
    legend: str
    empty_while: str | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over time. `help` says how to read them."""

    title: str
    help: str
    unit: Unit
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. `uid` is what links and pushes know it by."""

    uid: str
    title: str
    help: str
    rows: tuple[Row, ...]

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries, in the order of their panels."""
        return tuple(query for row in self.rows for panel in row.panels for query in panel.queries)

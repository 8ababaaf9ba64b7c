"""What Prometheus computes by itself: recorded series and alerts."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How soon somebody has to look."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class Recording:
    """A query whose result is kept under a name."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A value, which is always there once turns were served, and when it is bad."""

    value: str
    bad: str


@dataclass(frozen=True, slots=True)
class Alert:
    """Fires once all conditions held for `for_`; `runbook` is what to do then.

    Conditions after the first are compared whatever the labels of the first.
    """

    name: str
    severity: Severity
    conditions: tuple[Condition, ...]
    for_: str
    summary: str
    runbook: str

    @property
    def expr(self) -> str:
        """The conditions as one query."""
        return " and on() ".join(f"(({one.value}) {one.bad})" for one in self.conditions)

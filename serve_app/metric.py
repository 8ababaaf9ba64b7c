"""What a metric is, and a sample of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus' kinds of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Owner(StrEnum):
    """Whose metric it is, which says the way that it takes to Prometheus."""

    GATEWAY = "gateway"
    """Through the metrics agent of its Ray node, which puts `ray_` before the name."""
    REPLICA = "replica"
    """As a gateway's; Serve adds the label `replica`."""
    ROUTER = "router"
    """Read from the router actor when it is scraped."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. A label has few values: never the id of a session or a request.

    `unit` is what is counted or measured, `labels` maps names to their values as far as these are
    known beforehand. Histograms have `boundaries` in their unit.
    """

    owner: Owner
    kind: Kind
    name: str
    unit: str
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boundaries: tuple[float, ...] = ()

    @property
    def series(self) -> str:
        """The name in Prometheus; a histogram's goes on with `_bucket` or `_count`.

        Its `_sum` is nothing to rely on: Ray adds up the middles of buckets.
        """
        prefix = "" if self.owner is Owner.ROUTER else "ray_"
        suffix = "_total" if self.kind is Kind.COUNTER else ""
        return prefix + self.name + suffix


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a metric for these values of its labels, in their order."""

    metric: str
    labels: tuple[str, ...]
    value: float

"""Samples in Prometheus' text format."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from serve_app.metric import Kind, Metric, Sample
from serve_app.metrics import METRICS

Family = CounterMetricFamily | GaugeMetricFamily


class _Samples(Collector):
    """Prometheus' client asks this for the metrics that it writes down."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_metric: dict[str, list[Sample]] = {}
        for sample in samples:
            self._by_metric.setdefault(sample.metric, []).append(sample)

    def collect(self) -> Iterator[Family]:
        """Yield each metric with its samples."""
        for name, samples in self._by_metric.items():
            yield _family(METRICS[name], samples)


def _family(metric: Metric, samples: Sequence[Sample]) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family: Family = kind(metric.name, metric.help, labels=tuple(metric.labels))
    for sample in samples:
        family.add_metric(sample.labels, sample.value)
    return family


def exposition(samples: Iterable[Sample]) -> bytes:
    """Return the text that Prometheus reads.

    Raises:
        KeyError: a sample is of no metric that is declared.
    """
    return generate_latest(_Samples(samples))

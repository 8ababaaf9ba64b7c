"""Metrics of one process, which the metrics agent of its Ray node exports."""

from typing import Any

from ray.serve.metrics import Counter, Histogram

from serve_app.metric import Metric


def counter(metric: Metric) -> Counter:
    """Return this process's counter. Add nothing to it but what is above 0: Ray raises."""
    labels: Any = tuple(metric.labels)  # Ray's type says that there is but one
    return Counter(metric.name, metric.help, labels)


def histogram(metric: Metric) -> Histogram:
    """Return this process's histogram."""
    labels: Any = tuple(metric.labels)
    return Histogram(metric.name, metric.help, list(metric.boundaries), labels)

"""The metrics that are declared, and those of the router in Prometheus' text format."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve_app.exposition import exposition
from serve_app.metric import Kind, Metric, Owner, Sample
from serve_app.metrics import DECISIONS, METRICS, REPLICA_SYNCED, ROUTER_FALLBACKS, TTFT


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_a_metric_is_declared_well(metric: Metric) -> None:
    """A name of ours that ends in its unit, words that explain it, and no label without bounds."""
    assert re.fullmatch(r"warmturn(_[a-z]+)+", metric.name)
    assert metric.help.endswith(".")
    assert metric.unit not in {"seconds", "ratio"} or metric.name.endswith("_" + metric.unit)
    assert not {"session", "request"} & set(metric.labels)
    assert bool(metric.boundaries) == (metric.kind is Kind.HISTOGRAM)
    if metric.owner is Owner.ROUTER and metric.kind is Kind.COUNTER:
        assert all(metric.labels.values()), "a counter begins at 0 for all its labels' values"


def test_names_in_prometheus() -> None:
    """Ray's agent puts its name before those of a process; counters end as they have to."""
    assert ROUTER_FALLBACKS.series == "ray_warmturn_router_fallbacks_total"
    assert TTFT.series == "ray_warmturn_ttft_seconds"
    assert DECISIONS.series == "warmturn_decisions_total"
    assert REPLICA_SYNCED.series == "warmturn_replica_synced"


def test_samples_in_text() -> None:
    """Each metric comes once, with its kind, its help and all of its samples."""
    samples = [
        Sample(DECISIONS.name, ("new",), 3),
        Sample(REPLICA_SYNCED.name, ('a"b\\c',), 1),
        Sample(DECISIONS.name, ("moved",), 0),
    ]
    decisions, synced = text_string_to_metric_families(exposition(samples).decode())
    assert (decisions.name, decisions.type) == ("warmturn_decisions", "counter")
    assert decisions.documentation == DECISIONS.help
    values = {one.labels["rule"]: one.value for one in decisions.samples}
    assert values == {"new": 3, "moved": 0}
    [replica] = synced.samples
    assert (replica.labels, synced.type) == ({"replica": 'a"b\\c'}, "gauge")


def test_an_undeclared_metric_is_an_error() -> None:
    """Nothing is served that dashboards cannot know."""
    with pytest.raises(KeyError):
        exposition([Sample("warmturn_mystery", (), 1)])

"""What is compared, where watching a service is weighed."""

from pathlib import Path

import pytest

from benchmarks.observing import (
    PLAIN,
    WATCHED,
    Pair,
    Run,
    both_services,
    cpu_ratio,
    likely,
    throughput_ratio,
    watching,
)
from serve_app.config import AppConfig


def test_the_services_differ_in_what_watches_alone() -> None:
    """Each is one that warmturn serves, below a path of its own."""
    settings = watching("http://127.0.0.1:4317", Path("/tmp"))
    plain, watched = both_services(8000, settings)["applications"]
    assert (plain["name"], watched["name"]) == (PLAIN, WATCHED)
    assert plain["route_prefix"] != watched["route_prefix"]
    assert plain["args"] | settings == watched["args"]
    assert plain["args"] != watched["args"]
    assert plain["deployments"] == watched["deployments"]
    for one in (plain, watched):
        assert AppConfig.model_validate(one["args"])


def test_the_ratio_is_of_all_runs_together() -> None:
    """A run on a slow moment counts for as long as it took, in both."""
    pairs = [
        Pair(Run(1.0, 0.5, 0.0), Run(1.0, 1.0, 0.1)),
        Pair(Run(8.0, 1.5, 0.0), Run(9.0, 1.0, 0.1)),
    ]
    assert throughput_ratio(pairs) == 0.9
    assert cpu_ratio(pairs) == 1.0


def test_what_is_likely_narrows_with_the_number_of_pairs() -> None:
    """Around the ratio: a tenth of the pairs took half as long again."""
    steady, slow = Pair(Run(1, 1, 0), Run(1, 1, 0)), Pair(Run(1, 1, 0), Run(1.5, 1, 0))
    few, many = ([slow, *[steady] * 9] * times for times in (2, 40))
    assert throughput_ratio(few) == throughput_ratio(many) == pytest.approx(1 / 1.05)
    widths = []
    for pairs in (few, many):
        low, high = likely(pairs, throughput_ratio)
        assert low < throughput_ratio(pairs) < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 3

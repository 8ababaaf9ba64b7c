"""The table of what is left in overload."""

from dataclasses import replace

from benchmarks import overload_report
from benchmarks.simulated_runs import Runs
from tests.benchmarks.test_report import make_runs


def test_what_is_left_at_the_highest_load() -> None:
    """Of each policy, by its own best of the same seed: 6 of 10, and 3 of 10 with seed 2."""
    runs = make_runs()
    results = [
        replace(one, goodput_rps=3, refusals=50)
        if (one.policy, one.load, one.seed) == ("warmturn", 14, 2)
        else one
        for one in runs.results
    ]
    rows = overload_report.report(Runs(runs.commands, results)).splitlines()[-4:]
    ours = "**4.50 (3.00 to 6.00)** | **0.45 (0.30 to 0.60)** | **2.88 (2.75 to 3.00)**"
    assert rows[0].startswith(f"| **warmturn** | **14** | {ours} |")
    assert rows[0].endswith("| **0.25 (0.00 to 0.50)** |")
    assert rows[1].startswith("| sglang | 14 | 6.00 | 0.60 | 4.50 |")

"""The table of what bursts cost other sessions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from benchmarks import bursts_report
from benchmarks.simulator.result import Percentiles, Result
from tests.benchmarks.test_report import make_result


def write(path: Path, *results: Result) -> str:
    rows = [one.row() for one in results]
    path.write_text(json.dumps({"command": f"simulate --json {path.name}", "results": rows}))
    return str(path)


def thick(policy: str, load: float, seed: int, plain_p99_s: float) -> Result:
    plain_s = Percentiles(0.1, plain_p99_s / 2, plain_p99_s)
    made = make_result(policy, load, seed, 30.0)
    return replace(made, ttft_plain_s=plain_s, ttft_thick_s=Percentiles(50, 60, 70))


def test_each_seed_is_compared_with_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the plain sessions alone; policies that one of the files lacks are left out."""
    without = write(
        tmp_path / "without.json",
        thick("warmturn", 10, 1, 10.0),
        thick("warmturn", 10, 2, 4.0),
        thick("random", 10, 1, 4.0),
    )
    bursts = write(
        tmp_path / "with.json", thick("warmturn", 8, 2, 5.0), thick("warmturn", 8, 1, 10.0)
    )
    bursts_report.main([without, bursts])
    printed = capsys.readouterr().out
    assert "simulate --json without.json\nsimulate --json with.json\n" in printed
    [row] = [line.replace("*", "") for line in printed.splitlines() if "warmturn" in line]
    assert row == (
        "| warmturn | 10, 8 | 0.80 "
        "| 3.50 (2.00 to 5.00) | 3.75 (2.50 to 5.00) | 1.12 (1.00 to 1.25) "
        "| 7.00 (4.00 to 10.00) | 7.50 (5.00 to 10.00) | 1.12 (1.00 to 1.25) |"
    )
    assert "random" not in printed


def test_results_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    """One file alone, and runs without thick sessions."""
    plain = write(tmp_path / "plain.json", make_result("warmturn", 10, 1, 1.0))
    with pytest.raises(typer.BadParameter, match="both are needed"):
        bursts_report.main([plain])
    with pytest.raises(typer.BadParameter, match="both kinds of sessions"):
        bursts_report.main([plain, plain])

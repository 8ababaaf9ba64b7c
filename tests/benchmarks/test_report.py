"""Tables and figures of simulated results."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from benchmarks import report, scale_report
from benchmarks.knee import Knee, at_load, best_peer, knee
from benchmarks.markdown import END
from benchmarks.plots import __main__ as plots
from benchmarks.simulated_runs import Runs, Spread, read_runs
from benchmarks.simulator.result import Hits, Misses, Percentiles, Result, Waits


def make_result(policy: str, load: float, seed: int, p90_s: float) -> Result:
    """Return a result of four replicas, in which most is made up."""
    return Result(
        policy=policy, replicas=4, load=load, seed=seed, requests=100,
        ttft_s=Percentiles(p90_s / 2, p90_s, p90_s * 2),
        ttft_plain_s=Percentiles(p90_s / 2, p90_s, p90_s * 2), ttft_thick_s=None,
        e2e_s=Percentiles(1, 2, 3), hit_ratio=0.8, hits=Hits(0.5, 0.2, 0.1), available_ratio=0.9,
        captured_ratio=1 - load / 100, misses=Misses(0.1, 0.06, 0.04),
        slow_waits_s=Waits(0.0, 1.0, 2.0, 3.0), goodput_rps=min(load, 20 - load), refusals=0,
        prompt_tokens_per_s=1e5 * load, output_tokens_per_s=100 * load, user_tokens_per_s=80 - load,
        dispersion=0.4, moves=1, splits=0, decide_ms=0.3, busiest_ratio=1.1, replica_hours=3.0,
        running=[[1, 2, 3, 4], [2, 2, 2, 2]],
    )  # fmt: skip


def make_runs() -> Runs:
    """Return two seeds of four policies at three loads.

    Ours reaches 5 s at a load of 12, the best peer at 10.
    """
    p90_s = {
        "warmturn": ((1, 4, 6), (1, 4.5, 5.5)),
        "sglang": ((1, 5, 9), (1, 5, 9)),
        "random": ((6, 20, 60), (7, 20, 60)),
        "oracle": ((0.1, 0.1, 0.1), (0.1, 0.1, 0.1)),
    }
    return Runs(
        ["python -m benchmarks.simulate --load 4,10,14"],
        [
            make_result(policy, load, seed, value)
            for policy, seeds in p90_s.items()
            for seed, values in enumerate(seeds, 1)
            for load, value in zip((4, 10, 14), values, strict=True)
        ],
    )


def write(path: Path, runs: Runs) -> str:
    rows = [one.row() for one in runs.results]
    path.write_text(json.dumps({"command": runs.commands[0], "results": rows}))
    return str(path)


def test_a_knee_is_where_the_line_crosses() -> None:
    """Between simulated loads; of a seed that never crosses only one side is known."""
    runs = make_runs()
    assert knee(runs, "warmturn") == Knee(Spread(12.0, 12.0, 12.0), below=False, above=False)
    assert knee(runs, "random") == Knee(Spread(4.0, 4.0, 4.0), below=True, above=False)
    assert knee(runs, "oracle") == Knee(Spread(14.0, 14.0, 14.0), below=False, above=True)
    assert not knee(runs, "oracle").known
    assert best_peer(runs) == "sglang"


def test_the_median_of_knees_is_known_where_most_are() -> None:
    """One seed beyond the loads moves the spread's end alone."""
    runs = make_runs()
    third = [make_result("warmturn", load, 3, 1.0) for load in (4, 10, 14)]
    found = knee(replace(runs, results=[*runs.results, *third]), "warmturn")
    assert found == Knee(Spread(12.0, 12.0, 14.0), below=False, above=True)
    assert found.known


def test_a_curve_is_read_between_its_loads_only() -> None:
    """By linear interpolation of the medians."""
    curve = make_runs().curve("warmturn", lambda one: one.ttft_s.p90)
    assert curve[1] == (10, Spread(4.25, 4, 4.5))
    assert at_load(curve, 12) == pytest.approx(5.0)
    assert at_load(curve, 4) == 1
    assert at_load(curve, 15) is None


def test_the_report_has_the_knees_and_their_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It begins with the command that made the results, and ours stands out."""
    report.main([write(tmp_path / "runs.json", make_runs())])
    text = capsys.readouterr().out
    assert "python -m benchmarks.simulate --load 4,10,14" in text
    rows = {line.split(" | ")[0].strip("| *"): line for line in text.splitlines()[4:13]}
    assert rows["warmturn"].replace("*", "").split(" | ")[1:4] == ["12.0", "1.20", "4.25"]
    assert rows["oracle"].split(" | ")[1:3] == ["> 14.0", ""]
    assert rows["random"].split(" | ")[1:3] == ["< 4.0", ""]
    assert "**4.25 (4.00 to 4.50)**" in text


def test_a_report_goes_between_a_documents_marks(tmp_path: Path) -> None:
    """What was there before is replaced, and nothing else changes."""
    runs = write(tmp_path / "runs.json", make_runs())
    document = tmp_path / "doc.md"
    other = f"<!-- tables: other -->\nold\n{END}\n"
    mark = "<!-- tables: ours -->"
    document.write_text(f"before\n{other}{mark}\nold\n{END}\nafter\n")
    report.main([runs], document, "ours")
    first = document.read_text()
    report.main([runs], document, "ours")
    assert document.read_text() == first
    assert first.startswith(f"before\n{other}{mark}\n```")
    assert first.endswith(f"|\n{END}\nafter\n")
    assert first.count("old") == 1
    with pytest.raises(typer.BadParameter, match="there is no <!-- tables: none -->"):
        report.main([runs], document, "none")


@pytest.mark.parametrize(
    ("content", "why"),
    [("{}", "missing required field"), ('{"command": "x", "results": []}', "no results")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, why: str) -> None:
    """With the reason."""
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(typer.BadParameter, match=why):
        report.main([str(path)])


def test_every_figure_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same results give the same files, and ours is named in each."""
    runs = make_runs()
    larger = [replace(one, replicas=8) for one in runs.results if one.load == 10]
    path = write(tmp_path / "runs.json", replace(runs, results=[*runs.results, *larger]))
    for folder in ("first", "second"):
        plots.main([path], tmp_path / folder)
    for name in plots.FIGURES:
        first = (tmp_path / "first" / f"{name}.svg").read_text()
        assert first == (tmp_path / "second" / f"{name}.svg").read_text()
        assert re.search(r"<text[^>]*>warmturn", first)
    assert "too few" not in capsys.readouterr().out


def test_what_results_cannot_show_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One load of one size is no line."""
    runs = make_runs()
    one_load = replace(runs, results=[one for one in runs.results if one.load == 10])
    plots.main([write(tmp_path / "runs.json", one_load)], tmp_path)
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"hits", "replica_load"}
    assert "ttft: the results don't have enough" in capsys.readouterr().out


def test_a_label_tells_files_of_the_same_policies_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours is ours with any label, and so is a peer."""
    path = write(tmp_path / "runs.json", make_runs())
    runs = read_runs([path, f"10 GB/s={path}"])
    assert runs.policies[4:6] == ["warmturn, 10 GB/s", "sglang, 10 GB/s"]
    assert runs.peers == ["sglang", "random", "sglang, 10 GB/s", "random, 10 GB/s"]
    report.main([path, f"10 GB/s={path}"])
    assert "| **warmturn, 10 GB/s** | **12.0** | **1.20** |" in capsys.readouterr().out


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Nothing is lost on the way."""
    runs = make_runs()
    assert read_runs([write(tmp_path / "runs.json", runs)]) == runs


def test_sizes_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Knees where several loads were simulated, decisions' costs at the load with most sizes."""
    runs = make_runs()
    larger = [
        replace(one, replicas=64, decide_ms=1.5 * one.seed)
        for one in runs.results
        if one.load == 10 and one.policy != "sglang"
    ]
    path = write(tmp_path / "runs.json", replace(runs, results=[*runs.results, *larger]))
    document = tmp_path / "doc.md"
    document.write_text(f"<!-- tables: scale -->\n{END}\n")
    scale_report.main([path], [path], document)
    text = document.read_text().replace("*", "")
    assert "| policy | 4 |" in text
    assert "| warmturn | 12.0 |" in text
    assert "per decision at 10 sessions per replica" in text
    assert "| policy | 4 | 64 |" in text
    assert "| warmturn | 0.30 | 2.25 (1.50 to 3.00) |" in text
    assert "| sglang | 0.30 |  |" in text
    scale_report.main([path], [path])
    assert capsys.readouterr().out.replace("*", "").strip() in text
    with pytest.raises(typer.BadParameter, match="none"):
        scale_report.main([path], [str(tmp_path / "none.json")])

"""The micro-benchmark's command and what it writes."""

import json
from pathlib import Path

import pytest

from benchmarks import micro


def test_it_measures_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each figure is positive, printed, and written with the sizes it was measured at."""
    sizes = micro.Sizes(prompt_tokens=6400, replicas=4, other_blocks=4000)
    monkeypatch.setattr(micro, "Sizes", lambda: sizes)
    monkeypatch.setattr(micro, "APPLIED_BLOCKS", micro.EVENT_BLOCKS * 8)
    out = tmp_path / "micro.json"
    micro.main(out, seed=1)
    written = json.loads(out.read_text())
    assert written["command"] == "python -m benchmarks.micro --seed 1"
    [result] = written["results"]
    figures = ("hash_ms", "match_ms", "decide_ms", "apply_blocks_per_s", "bytes_per_block")
    assert all(result[figure] > 0 for figure in figures)
    assert (result["prompt_tokens"], result["replicas"]) == (6400, 4)
    printed = capsys.readouterr().out
    assert all(figure in printed for figure in figures)

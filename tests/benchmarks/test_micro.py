"""The micro-benchmark's command and what it writes."""

import json
from pathlib import Path

import pytest

from benchmarks import micro
from benchmarks.filled_router import EVENT_BLOCKS, Sizes

pytestmark = pytest.mark.slow

DECIDING = ("hash_ms", "match_ms", "decide_ms", "apply_blocks_per_s", "bytes_per_block")
TOKENIZING = (
    "tokenize_full_ms",
    "tokenize_incremental_ms",
    "render_turn_ms",
    "read_cold_ms",
    "read_turn_ms",
    "new_tokens",
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure at small sizes."""
    sizes = Sizes(prompt_tokens=6400, replicas=4, other_blocks=4000)
    monkeypatch.setattr(micro, "Sizes", lambda: sizes)
    monkeypatch.setattr(micro, "APPLIED_BLOCKS", EVENT_BLOCKS * 8)


def test_it_measures_and_writes(
    tmp_path: Path, smollm2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each figure is positive, printed, and written with the sizes it was measured at."""
    out = tmp_path / "micro.json"
    micro.main(out, seed=1, model=smollm2)
    written = json.loads(out.read_text())
    assert written["command"] == f"python -m benchmarks.micro --seed 1 --model {smollm2}"
    [result] = written["results"]
    assert all(result[figure] > 0 for figure in DECIDING + TOKENIZING)
    assert (result["prompt_tokens"], result["replicas"]) == (6400, 4)
    assert result["session_tokens"] >= 6400
    printed = capsys.readouterr().out
    assert all(figure in printed for figure in DECIDING + TOKENIZING)


def test_without_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tokenising is left out, and said to be, where no model is there; the rest is measured."""
    out = tmp_path / "micro.json"
    micro.main(out, model=tmp_path / "none")
    [result] = json.loads(out.read_text())["results"]
    assert all(figure in result for figure in DECIDING)
    assert not any(figure in result for figure in TOKENIZING)
    assert f"there is no model directory {tmp_path / 'none'}" in capsys.readouterr().out

"""The simulation's command and what it writes."""

import json
from pathlib import Path

import pytest
import typer

from benchmarks import simulate
from benchmarks.generated_sessions import generate_sessions
from benchmarks.traces import write_sessions

KEYS = {
    "policy", "replicas", "load", "seed", "requests", "ttft_s", "e2e_s", "hit_ratio",
    "available_ratio", "captured_ratio", "misses", "goodput_rps", "dispersion", "moves", "splits",
}  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A file of generated sessions."""
    path = tmp_path / "trace.jsonl.gz"
    write_sessions(path, generate_sessions(20, 1))
    return path


def test_it_prints_and_writes(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row for each policy, load and seed, in the table and in the file."""
    out = tmp_path / "out.json"
    simulate.main(
        trace, out, policies="warmturn,random", replicas=2, load="1,2", seed="1,2",
        minutes=5.0, warm_up_minutes=1.0, merged_blocks=16, shared_prefix=True, thick_ratio=0.1,
        add_replica_at=3.0,
    )  # fmt: skip
    written = json.loads(out.read_text())
    assert written["command"].startswith("python -m benchmarks.simulate")
    assert len(written["results"]) == 8
    assert all(set(row) >= KEYS for row in written["results"])
    assert set(written["results"][0]["ttft_s"]) == {"p50", "p90", "p99"}
    assert set(written["results"][0]["misses"]) == {"first_seen", "evicted", "elsewhere"}
    assert len(written["results"][0]["joining"]["shares"]) == 2
    printed = capsys.readouterr()
    assert printed.out.count("warmturn") == 8
    assert printed.out.count("a replica joined; hit ratio") == 8
    assert "random, load 2, seed 1: TTFT p90" in printed.err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"policies": "best"}, "there is no policy best"),
        ({"hardware": "abacus"}, "there is no abacus"),
        ({"trace": Path("none.jsonl")}, "none.jsonl"),
    ],
)
def test_bad_options_are_named(trace: Path, change: dict[str, object], why: str) -> None:
    """Before anything is simulated."""
    with pytest.raises(typer.BadParameter, match=why):
        simulate.main(**({"trace": trace} | change))  # type: ignore[arg-type]

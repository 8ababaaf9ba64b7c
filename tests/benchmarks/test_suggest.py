"""Settings that are proposed for recorded sessions, and that Serve takes them as they are."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from benchmarks.autoscale import main
from benchmarks.generated_sessions import generate_sessions
from benchmarks.suggest import Suggestion, suggest
from benchmarks.suggestion_report import autoscaling_config
from benchmarks.trace_options import fit, share_prefix
from benchmarks.traces import write_sessions
from policies.autoscale_settings import AutoscaleSettings
from serve_app import serve_file
from tests.benchmarks.test_autoscale import HARDWARE, SETTING

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> Suggestion:
    """What is proposed for sessions that fill about three replicas."""
    sessions = fit(share_prefix(generate_sessions(60, 1)), HARDWARE.max_context_tokens, 60.0)
    return suggest(sessions, replace(SETTING, day_s=2400.0), lambda _: None)


def test_what_is_proposed_was_the_best_tried(found: Suggestion) -> None:
    """No day with about as few late answers cost less, and the bounds hold all that was needed."""
    chosen = {
        (one.settings.target_hit_ratio, one.settings.headroom_deviations): one.day
        for one in found.tried
    }[found.settings.target_hit_ratio, found.settings.headroom_deviations]
    fewest = min(one.day.slo_misses for one in found.tried)
    assert chosen.slo_misses <= 1.05 * fewest
    assert all(
        one.day.replica_hours >= chosen.replica_hours
        for one in found.tried
        if one.day.slo_misses <= 1.05 * fewest
    )
    most = max(spread[2] for spread in found.demands.values())
    assert found.settings.max_replicas >= most
    assert 1 <= found.settings.min_replicas <= found.settings.max_replicas


def test_the_curve(found: Suggestion) -> None:
    """More memory never has less cached, and the last replica adds next to nothing."""
    hits = [one.hit_ratio for one in found.curve]
    assert hits == sorted(hits)
    assert hits[-1] - hits[-2] < 0.01
    assert found.curve[0].prefill_replicas >= found.curve[-1].prefill_replicas


def test_serve_takes_what_is_proposed(found: Suggestion, tmp_path: Path) -> None:
    """It is pasted into the project's own serve.yaml, and says all that was chosen."""
    content = serve_file.load(ROOT / "serve.yaml")
    options = serve_file.deployment(content, "engine")
    del options["num_replicas"]
    options |= yaml.safe_load(autoscaling_config(found))
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(content))
    serve_file.load(file)
    pasted = options["autoscaling_config"]
    bounds = {name: pasted[name] for name in ("min_replicas", "max_replicas")}
    given = AutoscaleSettings(**bounds, **pasted["policy"]["policy_kwargs"])
    assert given == found.settings


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the curve, the demands, the days and the settings, and writes the same."""
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    write_sessions(trace, generate_sessions(20, 1))
    main(trace, out, plateau=6, hours=0.3, suggest_settings=True)
    printed = capsys.readouterr().out
    assert "autoscaling_config:" in printed
    rows = json.loads(out.read_text())["results"]
    assert {"replicas", "demand", "target_hit_ratio", "settings"} <= {
        key for row in rows for key in row
    }
    assert rows[-1]["settings"]["max_replicas"] >= 1

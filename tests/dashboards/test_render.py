"""Dashboards as files: valid, in step with the code, and made of metrics that exist."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from vllm.v1.kv_offload.tiering.base import TieringOffloadingMetrics

from dashboards import render, vllm
from dashboards.alerts import ALERTS
from dashboards.grafana_json import COLUMNS, grafana_json
from dashboards.panel import Dashboard
from dashboards.recordings import RECORDINGS
from dashboards.registry import DASHBOARDS
from serve_app.metrics import METRICS
from serve_app.tier_report import COUNTERS

BY_UID = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))

OURS = re.compile(r"\b(?:ray_)?warmturn_[a-z_]+")
RECORDED = re.compile(r"\bwarmturn:[a-z_0-9:]+")


def run(*options: str) -> tuple[int, str]:
    """Run the command; return its exit status and all that it says."""
    app = typer.Typer()
    app.command()(render.render)
    result = CliRunner().invoke(app, options)
    return result.exit_code, result.output


def test_files_are_what_the_code_says() -> None:
    """`make dashboards` was run after the last change."""
    assert render.drift() == []


def test_render_and_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written by --check; what is missing, changed or left over is drift."""
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "OF_GRAFANA", tmp_path / "grafana")
    monkeypatch.setattr(render, "RULES", tmp_path / "rules.yml")
    status, said = run("--check")
    assert status == 1
    assert "dashboards/rules.yml is not" in said
    assert not list(tmp_path.iterdir())
    assert run()[0] == 0
    assert run("--check") == (0, "")
    (tmp_path / "grafana" / "old.json").write_text("{}")
    (tmp_path / "grafana" / "warmturn-routing.json").write_text("{}")
    status, said = run("--check")
    assert status == 1
    assert len(said.splitlines()) == 2
    run()
    assert run("--check") == (0, "")


@BY_UID
def test_a_dashboard_is_laid_out(dashboard: Dashboard) -> None:
    """No panel lies over another or beyond the page, and ids are unique."""
    taken: set[tuple[int, int]] = set()
    panels = grafana_json(dashboard)["panels"]
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= COLUMNS
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@BY_UID
def test_a_dashboard_says_what_it_shows(dashboard: Dashboard) -> None:
    """Each panel has a title of its own, words of help, and a legend for each line."""
    panels = [panel for row in dashboard.rows for panel in row.panels]
    assert len({panel.title for panel in panels}) == len(panels)
    assert all(panel.help.endswith(".") for panel in panels)
    assert all(query.legend for query in dashboard.queries)
    assert len(dashboard.uid) <= 40, "Grafana's limit"
    json.dumps(grafana_json(dashboard))


def test_only_metrics_that_are_declared_are_asked_for() -> None:
    """By the names that they have in Prometheus; recorded series are recorded."""
    series = {one.series for one in METRICS.values()}
    series |= {one + end for one in series for end in ("_bucket", "_count")}
    conditions = [one.value for alert in ALERTS for one in alert.conditions]
    exprs = [query.expr for one in DASHBOARDS.values() for query in one.queries]
    exprs += conditions + [one.expr for one in RECORDINGS]
    assert {name for expr in exprs for name in OURS.findall(expr)} <= series
    recorded = {one.name for one in RECORDINGS}
    assert {name for expr in exprs for name in RECORDED.findall(expr)} == recorded


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    """What nobody looks at need not be counted."""
    exprs = " ".join(query.expr for one in DASHBOARDS.values() for query in one.queries)
    assert [name for name, one in METRICS.items() if one.series not in exprs] == []


def test_every_vllm_series_is_looked_at() -> None:
    """The list has none that nothing uses."""
    exprs = " ".join(query.expr for one in DASHBOARDS.values() for query in one.queries)
    listed = [value for name, value in vars(vllm).items() if name.isupper()]
    assert [value for value in listed if value not in exprs] == []


def test_what_the_shared_tier_counts_is_looked_at() -> None:
    """Under the names that vLLM and the tier give it, as Ray's agent exports them."""
    exprs = " ".join(query.expr for one in DASHBOARDS.values() for query in one.queries)
    tiering = TieringOffloadingMetrics
    names = [
        *COUNTERS,
        tiering.CHUNK_QUERIES,
        tiering.CHUNK_HITS,
        tiering.READ_BYTES,
        tiering.READ_TIME,
        tiering.WRITE_BYTES,
        tiering.WRITE_TIME,
    ]
    series = ["ray_" + name.replace(":", "_") + "_total" for name in names]
    assert [one for one in series if one not in exprs] == []


def test_alerts_say_what_to_do() -> None:
    """Names, a summary and a runbook."""
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    for alert in ALERTS:
        assert alert.name.startswith("Warmturn")
        assert alert.summary.endswith(".")
        assert len(alert.runbook) > 80

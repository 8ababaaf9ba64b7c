"""What the documents list is what there is."""

import re
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.peers.registry import POLICIES
from benchmarks.report import replaced
from benchmarks.simulator.presets import PRESETS
from dashboards.alerts import ALERTS
from policies.prefix_break import Kind
from policies.tunables import Tunables
from serve_app import serve_file
from serve_app.config import UserConfig
from serve_app.metrics import METRICS

ROOT = Path(__file__).parents[1]


def test_every_tunable_is_listed_with_its_default() -> None:
    """In docs/routing.md, and nothing else is."""
    text = (ROOT / "docs/routing.md").read_text()
    table = text[text.index("## What can be set") : text.index("## The index")]
    listed = dict(re.findall(r"^\| `(\w+)` \| (\S+)", table, re.MULTILINE))
    assert listed.pop("weights") == "1"
    defaults = {one.name: one.default for one in fields(Tunables) if one.name != "weights"}
    assert {name: float(value) for name, value in listed.items()} == defaults


def test_serve_yaml_has_the_defaults() -> None:
    """What it sets for routing is what would be so without."""
    content = serve_file.load(ROOT / "serve.yaml")
    assert serve_file.deployment(content, "gateway")["user_config"]["routing"]
    assert serve_file.user_config(content) == UserConfig()


def test_the_benchmarks_policies_and_numbers_are_those_of_the_simulator() -> None:
    """In docs/benchmarks.md: every policy by name, and the default hardware's numbers."""
    text = (ROOT / "docs/benchmarks.md").read_text()
    table = text[text.index("## The policies") : text.index("## Results")]
    names = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in names for name in re.findall(r"`([\w-]+)`", cell)} == set(POLICIES)
    table = text[text.index("## The replicas") : text.index("## The policies")]
    listed = re.findall(r"^\| `(\w+)` \| (\S+)", table, re.MULTILINE)
    hardware = asdict(PRESETS["kimi-b200-host"])
    assert {name: float(value.replace(",", "")) for name, value in listed} == {
        name: value for name, value in hardware.items() if name != "shrink_ratio"
    }


def test_a_report_has_its_place() -> None:
    """In docs/benchmarks.md."""
    text = (ROOT / "docs/benchmarks.md").read_text()
    assert "a table" in replaced(text, "a table")


def test_every_kind_of_break_is_explained() -> None:
    """In docs/operating.md."""
    text = (ROOT / "docs/operating.md").read_text()
    assert [kind for kind in Kind if f"`{kind}`" not in text] == []


def test_every_metric_is_explained() -> None:
    """In docs/operating.md, and no other is."""
    text = (ROOT / "docs/operating.md").read_text()
    table = text[text.index("| metric | by | |") : text.index("## Logs")]
    assert set(re.findall(r"`(warmturn_\w+)`", table)) == set(METRICS)


def test_every_alert_is_explained() -> None:
    """In docs/operating.md."""
    text = (ROOT / "docs/operating.md").read_text().replace("…Slow", "WarmturnTtftBurnSlow")
    assert [alert.name for alert in ALERTS if f"`{alert.name}`" not in text] == []

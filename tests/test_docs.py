"""What the documents list is what there is."""

import re
from dataclasses import fields
from pathlib import Path

from dashboards.alerts import ALERTS
from policies.autoscale_settings import AutoscaleSettings
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


def test_every_autoscaling_setting_is_listed_with_its_default() -> None:
    """In docs/tuning.md; the bounds are Serve's."""
    text = (ROOT / "docs/tuning.md").read_text()
    table = text[text.index("## Settings") : text.index("## Compared")]
    listed = dict(re.findall(r"^\| `(\w+)` \| (\S+)", table, re.MULTILINE))
    bounds = ("min_replicas", "max_replicas")
    defaults = {
        one.name: one.default for one in fields(AutoscaleSettings) if one.name not in bounds
    }
    assert {name: float(value) for name, value in listed.items()} == defaults


def test_autoscaling_as_it_is_shown_can_be_deployed(tmp_path: Path) -> None:
    """The example in docs/tuning.md, in place of serve.yaml's number of replicas."""
    text = (ROOT / "docs/tuning.md").read_text()
    example = text[text.index("autoscaling_config:") :].split("```")[0]
    indented = example.replace("\n", "\n        ")
    file = tmp_path / "serve.yaml"
    file.write_text((ROOT / "serve.yaml").read_text().replace("num_replicas: 2", indented, 1))
    assert serve_file.deployment(serve_file.load(file), "engine")["autoscaling_config"]


def test_serve_yaml_has_the_defaults() -> None:
    """What it sets for routing is what would be so without."""
    content = serve_file.load(ROOT / "serve.yaml")
    assert serve_file.deployment(content, "gateway")["user_config"]["routing"]
    assert serve_file.user_config(content) == UserConfig()


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
    text = (ROOT / "docs/operating.md").read_text()
    assert [alert.name for alert in ALERTS if f"`{alert.name}`" not in text] == []

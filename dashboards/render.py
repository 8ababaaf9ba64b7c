"""Writes dashboards and rules as files: `python -m dashboards.render [--check]`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dashboards.grafana_json import grafana_json
from dashboards.prometheus_yaml import rules_yaml
from dashboards.registry import DASHBOARDS

ROOT = Path(__file__).parent
OF_GRAFANA = ROOT / "grafana"
RULES = ROOT / "rules.yml"


def files() -> dict[Path, str]:
    """Return what each written file should have in it."""
    pages = {
        OF_GRAFANA / f"{one.uid}.json": json.dumps(grafana_json(one), indent=1) + "\n"
        for one in DASHBOARDS.values()
    }
    return pages | {RULES: rules_yaml()}


def drift() -> list[str]:
    """Return the files that differ from the code, or that the code does not know."""
    expected = files()
    there = {*OF_GRAFANA.glob("*.json"), *expected}
    return sorted(
        str(path.relative_to(ROOT))
        for path in there
        if not path.exists() or path.read_text() != expected.get(path)
    )


def render(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail on drift.")] = False,
) -> None:
    """Write dashboards/grafana/*.json and dashboards/rules.yml."""
    differing = drift()
    if check:
        for name in differing:
            typer.echo(f"dashboards/{name} is not what the code says", err=True)
        raise typer.Exit(bool(differing))
    expected = files()
    for name in differing:
        path = ROOT / name
        if path in expected:
            path.parent.mkdir(exist_ok=True)
            path.write_text(expected[path])
        else:
            path.unlink()
        typer.echo(f"dashboards/{name}")


if __name__ == "__main__":
    typer.run(render)

"""Draws figures of results that `benchmarks.simulate` wrote.

    python -m benchmarks.plots RESULTS.json ... --out DIR

Needs matplotlib (the extra `benchmarks`).
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from matplotlib.figure import Figure
from rich.console import Console

from benchmarks.plots import (
    captured_reuse,
    decision_cost,
    hits,
    replica_load,
    style,
    throughput,
    ttft,
)
from benchmarks.simulated_runs import Runs, read_runs

FIGURES: Mapping[str, Callable[[Runs], Figure | None]] = {
    "ttft": ttft.figure,
    "throughput": throughput.figure,
    "hits": hits.figure,
    "captured_reuse": captured_reuse.figure,
    "replica_load": replica_load.figure,
    "decision_cost": decision_cost.figure,
}


def main(
    results: Annotated[list[str], typer.Argument(help="FILE or LABEL=FILE, several times.")],
    out: Annotated[Path, typer.Option(help="Directory for the figures.")],
    kind: Annotated[str, typer.Option(help="svg or png.")] = "svg",
) -> None:
    """Draw what the results have; say which figures they are too few for."""
    try:
        runs = read_runs(results)
    except (OSError, ValueError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    out.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False, soft_wrap=True)
    for name, draw in FIGURES.items():
        figure = draw(runs)
        if figure is None:
            console.print(f"{name}: the results don't have enough loads, sizes or policies")
            continue
        path = out / f"{name}.{kind}"
        style.save(figure, path)
        console.print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    typer.run(main)

"""Prints how policies do with few replicas and with many, and what a decision costs then.

    python -m benchmarks.scale_report RESULTS.json ... --costs RESULTS.json ... \
        [--into docs/benchmarks.md]

Costs are of simulations of one load, which may be short. Figures are medians over seeds, with the
least and the most in parentheses.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.knee import knee
from benchmarks.markdown import commands_block, knee_cell, publish, spread_cell, table
from benchmarks.simulated_runs import Runs, Spread, read_runs
from benchmarks.simulator.measurements import TTFT_SLO_S


def main(
    results: Annotated[list[str], typer.Argument(help="FILE or LABEL=FILE, several times.")],
    costs: Annotated[list[str], typer.Option(help="Files of one load, several sizes.")],
    into: Annotated[
        Path | None, typer.Option(help="Document whose marked lines are replaced.")
    ] = None,
    tables: Annotated[str, typer.Option(help="Which of its tables.")] = "scale",
) -> None:
    """Print the tables, or write them into a document."""
    publish(lambda: report(read_runs(results), read_runs(costs)), into, tables)


def report(runs: Runs, costs: Runs) -> str:
    """Return both tables, with the commands that made the results."""
    one_load = costs.of_most_sizes()
    parts = [
        commands_block([*runs.commands, *costs.commands]),
        f"Knee, live sessions per replica with p90 <= {TTFT_SLO_S:g} s, by replicas:",
        _knees(runs),
        f"Milliseconds per decision at {one_load.loads[0]:g} sessions per replica, by replicas:",
        _costs(one_load),
    ]
    return "\n\n".join(parts)


def _knees(runs: Runs) -> str:
    """Return the knees at sizes that were simulated with several loads."""
    by_size = {size: runs.of_size(size) for size in runs.sizes}
    by_size = {size: sized for size, sized in by_size.items() if len(sized.loads) > 1}
    rows = [
        [
            policy,
            *(
                knee_cell(knee(sized, policy)) if sized.of(policy) else ""
                for sized in by_size.values()
            ),
        ]
        for policy in runs.policies
    ]
    return table(["policy", *map(str, by_size)], rows)


def _costs(runs: Runs) -> str:
    """Return what a decision costs at each size, of runs of one load."""
    rows = [
        [policy, *(_cost_cell(runs.of_size(size), policy) for size in runs.sizes)]
        for policy in runs.policies
    ]
    return table(["policy", *map(str, runs.sizes)], rows)


def _cost_cell(runs: Runs, policy: str) -> str:
    costs_ms = [one.decide_ms for one in runs.of(policy)]
    return spread_cell(Spread.of(costs_ms), ".2f") if costs_ms else ""


if __name__ == "__main__":
    typer.run(main)

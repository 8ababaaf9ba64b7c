"""Prints what is left in time when more sessions are live than can be served.

    python -m benchmarks.overload_report [LABEL=]RESULTS.json ... [--into docs/benchmarks.md]

Each policy is simulated at several loads: the highest is the overload, and the best is the most
that came in time at any of them, of the same seed. Figures are medians over seeds, with the least
and the most in parentheses.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.markdown import commands_block, publish, spread_cell, table
from benchmarks.simulated_runs import Measure, Runs, Spread, read_runs
from benchmarks.simulator.measurements import TTFT_SLO_S

HEAD = (
    "policy",
    "sessions per replica",
    f"requests per second within {TTFT_SLO_S:g} s",
    "... of its best",
    "TTFT p50, s",
    "p90, s",
    "p99, s",
    "times that a request was turned away",
)


def main(
    results: Annotated[list[str], typer.Argument(help="FILE or LABEL=FILE, several times.")],
    into: Annotated[
        Path | None, typer.Option(help="Document whose marked lines are replaced.")
    ] = None,
    tables: Annotated[str, typer.Option(help="Which of its tables.")] = "overload",
) -> None:
    """Print the table, or write it into a document."""
    publish(lambda: report(read_runs(results)), into, tables)


def report(runs: Runs) -> str:
    """Return the table, with the commands that made the results."""
    rows = [_row(runs, policy) for policy in runs.policies]
    return f"{commands_block(runs.commands)}\n\n{table(HEAD, rows)}"


def _row(runs: Runs, policy: str) -> list[str]:
    load = max(one.load for one in runs.of(policy))

    def cell(measure: Measure, form: str) -> str:
        return spread_cell(Spread.of([*map(measure, runs.of(policy, load=load))]), form)

    def best_rps(seed: int) -> float:
        return max(one.goodput_rps for one in runs.of(policy, seed=seed))

    return [
        policy,
        f"{load:g}",
        cell(lambda one: one.goodput_rps, ".2f"),
        cell(lambda one: one.goodput_rps / best_rps(one.seed), ".2f"),
        cell(lambda one: one.ttft_s.p50, ".2f"),
        cell(lambda one: one.ttft_s.p90, ".1f"),
        cell(lambda one: one.ttft_s.p99, ".0f"),
        cell(lambda one: one.refusals / one.requests, ".2f"),
    ]


if __name__ == "__main__":
    typer.run(main)

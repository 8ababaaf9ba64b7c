"""Prints the tables of docs/benchmarks.md from results that `benchmarks.simulate` wrote.

    python -m benchmarks.report RESULTS.json ... [--into docs/benchmarks.md [--tables NAME]]

Every figure is the median over seeds, with the least and the most in parentheses.
"""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.knee import Knee, at_load, best_peer, knee
from benchmarks.markdown import commands_block, knee_cell, publish, spread_cell, table
from benchmarks.simulated_runs import Measure, Runs, read_runs
from benchmarks.simulator.measurements import TTFT_SLO_S

_PAST_KNEE = 1.5
"""How far past its knee a policy is looked at."""


def main(
    results: Annotated[list[str], typer.Argument(help="FILE or LABEL=FILE, several times.")],
    into: Annotated[
        Path | None, typer.Option(help="Document whose marked lines are replaced.")
    ] = None,
    tables: Annotated[str, typer.Option(help="Which of its tables.")] = "placement",
) -> None:
    """Print the tables, or write them into a document."""
    publish(lambda: report(read_runs(results)), into, tables)


def report(runs: Runs) -> str:
    """Return all tables, with the commands that made the results."""
    main_size = runs.of_main_size()
    parts = [
        commands_block(runs.commands),
        _overview(main_size),
        "Time to first token, 90th percentile, seconds, by live sessions per replica:",
        _by_load(main_size, lambda one: one.ttft_s.p90, ".2f"),
        f"Requests per second and replica whose first token came within {TTFT_SLO_S:g} s:",
        _by_load(main_size, lambda one: one.goodput_rps / one.replicas, ".3f"),
        "Captured reuse: cached tokens by those that unlimited memory and perfect placement have:",
        _by_load(main_size, lambda one: one.captured_ratio, ".3f"),
    ]
    return "\n\n".join(parts)


def _overview(runs: Runs) -> str:
    """Return the knees, and what each policy is like at the best peer's knee and past its own."""
    peer = best_peer(runs)
    peers_knee = knee(runs, peer) if peer else None
    rows = []
    for policy in sorted(runs.policies, key=lambda one: -knee(runs, one).load.median):
        own = knee(runs, policy)
        rows.append(
            [
                policy,
                knee_cell(own),
                _ratio(own, peers_knee),
                _at(runs, policy, peers_knee, lambda one: one.ttft_s.p90, ".2f"),
                _at(runs, policy, peers_knee, lambda one: one.captured_ratio, ".3f"),
                _at(runs, policy, peers_knee, lambda one: one.dispersion, ".2f"),
                _past_knee(runs, policy, own),
            ]
        )
    at = f"at {peer}'s knee" if peer else "at the best peer's knee"
    head = [
        "policy",
        f"knee: sessions per replica with p90 <= {TTFT_SLO_S:g} s",
        "of the best peer's",
        f"p90, s, {at}",
        f"captured reuse {at}",
        f"dispersion {at}",
        f"goodput at {_PAST_KNEE:g}x its knee, of its best",
    ]
    seeds = ", ".join(map(str, runs.seeds))
    return f"{runs.results[0].replicas} replicas, seeds {seeds}:\n\n{table(head, rows)}"


def _by_load(runs: Runs, measure: Measure, form: str) -> str:
    """Return a table of one measure, a row for each policy and a column for each load."""
    curves = {policy: dict(runs.curve(policy, measure)) for policy in runs.policies}
    rows = [
        [policy, *(spread_cell(curve[load], form) if load in curve else "" for load in runs.loads)]
        for policy, curve in curves.items()
    ]
    return table(["policy", *(f"{load:g}" for load in runs.loads)], rows)


def _ratio(own: Knee, peers: Knee | None) -> str:
    """Return the ratio of two knees, where both are known."""
    if peers is None or not (own.known and peers.known):
        return ""
    return f"{own.load.median / peers.load.median:.2f}"


def _at(runs: Runs, policy: str, peers: Knee | None, measure: Measure, form: str) -> str:
    """Return a measure at the best peer's knee, where that is known."""
    if peers is None or not peers.known:
        return ""
    value = at_load(runs.curve(policy, measure), peers.load.median)
    return "" if value is None else f"{value:{form}}"


def _past_knee(runs: Runs, policy: str, own: Knee) -> str:
    """Return the goodput past a policy's knee by its best one, where it was simulated."""
    curve = runs.curve(policy, lambda one: one.goodput_rps)
    value = None if not own.known else at_load(curve, _PAST_KNEE * own.load.median)
    best = max(spread.median for _, spread in curve)
    return "" if value is None or not best else f"{value / best:.2f}"


if __name__ == "__main__":
    typer.run(main)

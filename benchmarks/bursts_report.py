"""Prints what the bursts of thick sessions cost those that send none.

    python -m benchmarks.bursts_report WITHOUT.json WITH.json ... [--into docs/benchmarks.md]

Each pair of files has simulations of one load, the first without bursts (`--burst-size 0`), the
second with them. Ratios are of runs with the same seed, and so of the same sessions; every figure
is the median over seeds, with the least and the most in parentheses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.markdown import commands_block, publish, spread_cell, table
from benchmarks.simulated_runs import Runs, Spread, read_runs
from benchmarks.simulator.result import Percentiles, Result

HEAD = (
    "policy",
    "sessions per replica, without bursts and with",
    "prompt tokens, of those without",
    "p90 without, s",
    "with, s",
    "with, of that without",
    "p99 without, s",
    "with, s",
    "with, of that without",
)


@dataclass(frozen=True, slots=True)
class Pair:
    """One seed's results of one policy."""

    without: Result
    bursts: Result


def main(
    results: Annotated[list[str], typer.Argument(help="Pairs of files: without bursts, with.")],
    into: Annotated[
        Path | None, typer.Option(help="Document whose marked lines are replaced.")
    ] = None,
    tables: Annotated[str, typer.Option(help="Which of its tables.")] = "bursts",
) -> None:
    """Print the table, or write it into a document."""
    publish(lambda: report([read_runs([result]) for result in results]), into, tables)


def report(runs: Sequence[Runs]) -> str:
    """Return the table, with the commands that made the results; ValueError where one is alone."""
    if len(runs) % 2:
        msg = "of each pair of files both are needed"
        raise ValueError(msg)
    rows = [
        _row(policy, pairs)
        for without, bursts in zip(runs[::2], runs[1::2], strict=True)
        for policy in without.policies
        if (pairs := _pairs(without, bursts, policy))
    ]
    commands = list(dict.fromkeys(command for one in runs for command in one.commands))
    return f"{commands_block(commands)}\n\n{table(HEAD, rows)}"


def _pairs(without: Runs, bursts: Runs, policy: str) -> list[Pair]:
    """Return the results of a policy that both have."""
    by_seed = {one.seed: one for one in bursts.of(policy)}
    return [Pair(one, by_seed[one.seed]) for one in without.of(policy) if one.seed in by_seed]


def _row(policy: str, pairs: Sequence[Pair]) -> list[str]:
    first = pairs[0]

    def seconds(p: Callable[[Percentiles], float]) -> list[str]:
        """Return a percentile of the sessions that send no bursts, in both, and their ratio."""
        both_s = [(p(_plain_s(one.without)), p(_plain_s(one.bursts))) for one in pairs]
        return [
            spread_cell(Spread.of([without_s for without_s, _ in both_s]), ".2f"),
            spread_cell(Spread.of([bursts_s for _, bursts_s in both_s]), ".2f"),
            spread_cell(Spread.of([bursts_s / without_s for without_s, bursts_s in both_s]), ".2f"),
        ]

    work = [one.bursts.prompt_tokens_per_s / one.without.prompt_tokens_per_s for one in pairs]
    return [
        policy,
        f"{first.without.load:g}, {first.bursts.load:g}",
        spread_cell(Spread.of(work), ".2f"),
        *seconds(lambda ttft_s: ttft_s.p90),
        *seconds(lambda ttft_s: ttft_s.p99),
    ]


def _plain_s(result: Result) -> Percentiles:
    if result.ttft_plain_s is None or result.ttft_thick_s is None:
        msg = f"{result.policy}, seed {result.seed}: both kinds of sessions are needed"
        raise ValueError(msg)
    return result.ttft_plain_s


if __name__ == "__main__":
    typer.run(main)

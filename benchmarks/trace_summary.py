"""Prints what is in a file of recorded sessions, as a table in Markdown.

python -m benchmarks.trace_summary FILE
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.trace_session import TraceSession, common_blocks
from benchmarks.traces import read_sessions

_PERCENTILES = (10, 50, 90, 99)


def main(
    trace: Annotated[Path, typer.Argument(help="Sessions; see benchmarks/traces.py.")],
) -> None:
    """Print the table."""
    try:
        sessions = read_sessions(trace)
    except (OSError, ValueError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    print(summary(sessions))


def summary(sessions: Sequence[TraceSession]) -> str:
    """Return the table, and what was counted."""
    steps = [step for session in sessions for step in session.steps]
    requests = [request for step in steps for request in step]
    beside = sum(len(step) for step in steps if len(step) > 1)
    new_tokens = [new for session in sessions for new in _new_tokens(session)]
    prompt_tokens = sum(one.prompt_tokens for one in requests)
    rows: dict[str, Sequence[float]] = {
        "steps of a session": [len(session.steps) for session in sessions],
        "prompt tokens": [one.prompt_tokens for one in requests],
        "... of them new since the step before": new_tokens,
        "... of a session's longest": [
            max(one.prompt_tokens for step in session.steps for one in step) for session in sessions
        ],
        "tokens of tools and system prompt": [
            session.tool_tokens + session.system_tokens for session in sessions
        ],
        "output tokens": [one.output_tokens for one in requests],
        "pause before a request, seconds": [one.think_s for one in requests],
    }
    head = ["", *(f"p{percentile}" for percentile in _PERCENTILES), "mean"]
    lines = [head, ["---", *("---:" for _ in head[1:])]]
    lines += [
        [name, *(_number(value) for value in (*np.percentile(row, _PERCENTILES), np.mean(row)))]
        for name, row in rows.items()
        if len(row)
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    growth = [one for session in sessions for one in _growth(session)]
    return (
        f"{len(sessions)} sessions, {len(requests):,} requests, {prompt_tokens / 1e9:.2f} billion "
        f"prompt tokens; {beside / len(requests):.1%} of the requests ran beside others of their "
        f"session.\n\n{table}{_grown(growth)}"
    )


def _grown(growth: Sequence[tuple[int, int]]) -> str:
    """Return how growth goes with answers; nothing where no prompt extends the one before."""
    if not growth:
        return ""
    grown, answered = np.array(growth).T
    return (
        f"\n\nOf the prompts that extend the one before, {np.mean(grown >= answered):.0%} grew by "
        f"at least the answer to it. Answers are {answered.sum() / grown.sum():.0%} of what they "
        "grew by."
    )


def _new_tokens(session: TraceSession) -> list[int]:
    """Return of each step's first request but the first what its prompt adds to the last one."""
    return [
        after.prompt_tokens - common_blocks(before.hash_ids, after.hash_ids) * session.block_size
        for before, after in pairwise(session.requests)
    ]


def _growth(session: TraceSession) -> list[tuple[int, int]]:
    """Return of each prompt that extends the one before what it adds, and how long the answer was.

    That is so if all but the last full block are the same.
    """
    return [
        (after.prompt_tokens - before.prompt_tokens, before.output_tokens)
        for before, after in pairwise(session.requests)
        if common_blocks(before.hash_ids, after.hash_ids) >= sum(map(len, before.hash_ids)) - 1
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


if __name__ == "__main__":
    typer.run(main)

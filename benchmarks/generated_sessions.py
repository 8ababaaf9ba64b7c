"""Sessions drawn at random with the statistics of recorded coding agents, for want of a trace.

    python -m benchmarks.generated_sessions --out FILE --sessions 500 --seed 1

Every number is the median, and the spread of the logarithm, of 523 public sessions of Claude Code
(Weka's traces in `callanjfox/kv-cache-tester`, commit 94f6046).
"""

import math
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from benchmarks.trace_session import TraceRequest, TraceSession
from benchmarks.traces import write_sessions

BLOCK_SIZE = 64
TURNS = (39.0, 1.16)
FIRST_TOKENS = (28_000.0, 1.1)
NEW_TOKENS = (820.0, 1.07)
OUTPUT_TOKENS = (260.0, 0.9)
THINK_S = (17.0, 1.59)
MAX_TURNS = 440
MAX_PROMPT_TOKENS = 240_000
"""A longer history is compacted: the next prompt keeps tools and system prompt only."""

REWRITE_RATIO = 0.03
"""Turns that do not extend the last one ..."""

REWRITTEN_FROM_RATIO = 0.16
"""... but the first part of it."""

TOOL_TOKENS = (12_439, 12_597, 9_292, 10_837, 9_568)
SYSTEM_TOKENS = 2_800


def generate_sessions(count: int, seed: int) -> list[TraceSession]:
    """Return `count` sessions; the same seed gives the same ones."""
    rng = Random(seed)  # noqa: S311  # a simulation
    return [_session(f"generated-{number}", rng) for number in range(count)]


def _session(name: str, rng: Random) -> TraceSession:
    tool_tokens = rng.choice(TOOL_TOKENS)
    prefix_tokens = tool_tokens + SYSTEM_TOKENS
    turns = min(MAX_TURNS, max(1, round(_draw(TURNS, rng))))
    tokens = min(MAX_PROMPT_TOKENS, prefix_tokens + round(_draw(FIRST_TOKENS, rng)))
    runs: tuple[range, ...] = (range(1, 1 + tokens // BLOCK_SIZE),)
    next_id = runs[0].stop
    steps = []
    for turn in range(turns):
        if turn:
            kept_tokens = tokens
            if tokens > MAX_PROMPT_TOKENS:
                kept_tokens, tokens = prefix_tokens, prefix_tokens
            elif rng.random() < REWRITE_RATIO:
                kept_tokens = round(tokens * REWRITTEN_FROM_RATIO)
            tokens += 1 + round(_draw(NEW_TOKENS, rng))
            kept = _cut(runs, kept_tokens // BLOCK_SIZE)
            added = tokens // BLOCK_SIZE - sum(map(len, kept))
            runs = (*kept, range(next_id, next_id + added)) if added > 0 else kept
            next_id += max(0, added) + 1
        request = TraceRequest(
            hash_ids=runs,
            prompt_tokens=tokens,
            output_tokens=1 + round(_draw(OUTPUT_TOKENS, rng)),
            think_s=round(_draw(THINK_S, rng), 1) if turn else 0.0,
        )
        steps.append((request,))
    return TraceSession(name, name, BLOCK_SIZE, tool_tokens, SYSTEM_TOKENS, tuple(steps))


def _draw(median_and_spread: tuple[float, float], rng: Random) -> float:
    median, spread = median_and_spread
    return rng.lognormvariate(math.log(median), spread)


def _cut(runs: tuple[range, ...], blocks: int) -> tuple[range, ...]:
    kept: list[range] = []
    for run in runs:
        if run := run[:blocks]:
            kept.append(run)
            blocks -= len(run)
    return tuple(kept)


def main(
    out: Annotated[Path, typer.Option(help="File to write; gzipped if it ends in .gz.")],
    sessions: Annotated[int, typer.Option(help="How many sessions.")] = 500,
    seed: Annotated[int, typer.Option(help="The same seed gives the same sessions.")] = 1,
) -> None:
    """Write sessions drawn at random."""
    write_sessions(out, generate_sessions(sessions, seed))


if __name__ == "__main__":
    typer.run(main)

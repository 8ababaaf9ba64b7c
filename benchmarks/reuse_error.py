"""How far sampled reuse curves are from the exact one, and how much smaller their memory is.

python -m benchmarks.reuse_error --trace FILE --requests 6000
"""

import tracemalloc
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.simulator.traffic import ClosedLoop
from benchmarks.simulator.turn import Turn
from benchmarks.trace_options import fit, share_prefix
from benchmarks.traces import read_sessions
from policies.reuse_curve import Floats, ReuseSampler

_MAX_CONTEXT_TOKENS = 262_144
_LONGEST_S = 1e9
_FIRST_TOKEN_S, _TOKEN_S = 3.0, 0.02
"""How long an answer takes."""


def replay(traffic: ClosedLoop) -> Iterator[tuple[float, Turn]]:
    """Yield turns in the order in which they are sent, and when."""
    order = count()
    agenda = [(at_s, next(order), turn, False) for at_s, turn in traffic.start()]
    heapify(agenda)
    while agenda:
        now_s, _, turn, ends = heappop(agenda)
        if ends:
            for at_s, following in traffic.finished(turn, now_s):
                heappush(agenda, (at_s, next(order), following, False))
        else:
            yield now_s, turn
            ends_at_s = now_s + _FIRST_TOKEN_S + turn.output_tokens * _TOKEN_S
            heappush(agenda, (ends_at_s, next(order), turn, True))


def measure(
    turns: list[tuple[float, Turn]], block_size: int, max_samples: int, sizes: Floats
) -> tuple[Floats, int]:
    """Return the hit ratio of each size of memory, and the bytes that it took to find out."""
    tracemalloc.start()
    sampler = ReuseSampler(block_size, _LONGEST_S, max_samples)
    for at_s, turn in turns:
        hashes = np.array(turn.request.hashes, np.uint64)
        sampler.add(hashes, turn.request.prompt_tokens, at_s)
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    curve = sampler.curve(turns[-1][0])
    return np.array([curve.hit_ratio(size) for size in sizes]), used_bytes


def main(
    trace: Annotated[Path, typer.Option(help="Sessions to replay; see benchmarks/traces.py.")],
    requests: Annotated[int, typer.Option(help="How many requests.")] = 6000,
    live: Annotated[int, typer.Option(help="Sessions at a time.")] = 100,
    shared_prefix: Annotated[bool, typer.Option(help="Sessions share tools and system.")] = True,
) -> None:
    """Compare sampled curves with the exact one."""
    sessions = read_sessions(trace)
    if shared_prefix:
        sessions = share_prefix(sessions)
    sessions = fit(sessions, _MAX_CONTEXT_TOKENS, max_think_s=300.0)
    traffic = replay(ClosedLoop(sessions, live, seed=1))
    turns = [next(traffic) for _ in range(requests)]
    sizes = np.geomspace(1e5, 2e8, 60)
    block_size = sessions[0].block_size
    exact, exact_bytes = measure(turns, block_size, 1 << 40, sizes)
    typer.echo(f"exact: {exact_bytes / 1e6:.1f} MB")
    for max_samples in (2048, 4096, 8192):
        found, used_bytes = measure(turns, block_size, max_samples, sizes)
        errors = np.abs(found - exact)
        typer.echo(
            f"{max_samples} samples: {used_bytes / 1e6:.2f} MB, {used_bytes / exact_bytes:.2%}; "
            f"error {errors.max():.4f} at most, {errors.mean():.4f} on average"
        )


if __name__ == "__main__":
    typer.run(main)

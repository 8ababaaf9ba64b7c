"""Replays sessions through policies on a virtual clock.

    python -m benchmarks.simulate --trace FILE --policies a,b|all --replicas N --load L --seed S \
        --json OUT

A policy's settings may be changed: `dynamo:prefill_load_scale=4`, `warmturn:stickiness_s=1`.
"""

import gc
import time
from math import inf
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.peers.registry import POLICIES, make_policy
from benchmarks.results import given_command, write_results
from benchmarks.simulated_table import print_table
from benchmarks.simulator.joining import Joining
from benchmarks.simulator.presets import PRESETS, Hardware, preset_of
from benchmarks.simulator.result import Result
from benchmarks.simulator.shared_tier import SharedTierSize
from benchmarks.simulator.simulation import Setting, simulate
from benchmarks.trace_options import Part, add_bursts, fit, part_of, share_prefix, shrink
from benchmarks.trace_session import TraceSession
from benchmarks.traces import read_sessions

BURST_SIZE = 8

COLUMNS = (
    ("policy", lambda one: one.policy),
    ("replicas", lambda one: str(one.replicas)),
    ("load", lambda one: f"{one.load:g}"),
    ("seed", lambda one: str(one.seed)),
    ("requests", lambda one: str(one.requests)),
    ("TTFT p50 s", lambda one: f"{one.ttft_s.p50:.2f}"),
    ("p90", lambda one: f"{one.ttft_s.p90:.2f}"),
    ("p99", lambda one: f"{one.ttft_s.p99:.1f}"),
    ("e2e p50 s", lambda one: f"{one.e2e_s.p50:.1f}"),
    ("hit", lambda one: f"{one.hit_ratio:.3f}"),
    ("shared", lambda one: f"{one.hits.shared:.3f}"),
    ("captured", lambda one: f"{one.captured_ratio:.3f}"),
    ("evicted", lambda one: f"{one.misses.evicted:.3f}"),
    ("elsewhere", lambda one: f"{one.misses.elsewhere:.3f}"),
    ("goodput/s", lambda one: f"{one.goodput_rps:.3f}"),
    ("dispersion", lambda one: f"{one.dispersion:.2f}"),
    ("moves", lambda one: str(one.moves)),
    ("splits", lambda one: str(one.splits)),
)
"""What the table shows of a result."""


def prepare(
    sessions: list[TraceSession],
    hardware: Hardware,
    *,
    part: Part,
    max_think_s: float,
    shared_prefix: bool,
    thick_ratio: float,
) -> list[TraceSession]:
    """Make the sessions ready for the hardware. Raises ValueError where none is left."""
    sessions = shrink(part_of(sessions, part), hardware.shrink_ratio)
    if shared_prefix:
        sessions = share_prefix(sessions)
    if thick_ratio:
        sessions = add_bursts(sessions, thick_ratio, BURST_SIZE, seed=0)
    sessions = fit(sessions, hardware.max_context_tokens, max_think_s)
    if not sessions:
        msg = "no session is left that fits the model's context"
        raise ValueError(msg)
    return sessions


def print_joining(result: Result, joining: Joining) -> None:
    """Print what a replica that joined did."""
    shares = " ".join(f"{share:.2f}" for share in joining.shares[:10])
    Console(highlight=False, soft_wrap=True).print(
        f"{result.policy}, load {result.load:g}, seed {result.seed}: a replica joined; hit ratio "
        f"{joining.hit_ratio_before:.3f} in the ten minutes before, {joining.hit_ratio_after:.3f} "
        f"after; its share of requests by minute, of an even one: {shares}"
    )


def main(
    trace: Annotated[Path, typer.Option(help="Sessions to replay; see benchmarks/traces.py.")],
    json_out: Annotated[Path | None, typer.Option("--json", help="File for the results.")] = None,
    policies: Annotated[str, typer.Option(help="Names with commas between them, or all.")] = "all",
    replicas: Annotated[int, typer.Option(help="How many replicas.")] = 8,
    load: Annotated[
        str,
        typer.Option(
            help="Live sessions a replica, or sessions a second in an open loop; or several."
        ),
    ] = "8",
    seed: Annotated[
        str, typer.Option(help="The same seed gives the same result; or several.")
    ] = "1",
    hardware: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "kimi-b200-host",
    minutes: Annotated[float, typer.Option(help="Virtual time, warm-up included.")] = 60.0,
    warm_up_minutes: Annotated[float, typer.Option(help="Left out of all figures.")] = 15.0,
    part: Annotated[
        Part, typer.Option(help="Sessions: all, to tune by, or to judge by.")
    ] = Part.ALL,
    max_think_s: Annotated[float, typer.Option(help="Longer pauses are cut to this.")] = 300.0,
    merged_blocks: Annotated[int, typer.Option(help="Recorded blocks in one; 1 is exact.")] = 4,
    open_loop: Annotated[bool, typer.Option(help="Let sessions arrive at random.")] = False,
    shared_prefix: Annotated[bool, typer.Option(help="Sessions share tools and system.")] = False,
    thick_ratio: Annotated[
        float, typer.Option(help="Share of sessions that send bursts of 8.")
    ] = 0.0,
    add_replica_at: Annotated[
        float | None, typer.Option(help="Minute at which one more replica joins.")
    ] = None,
    shared_gbps: Annotated[
        float | None, typer.Option(help="GB/s of each replica to a tier that all share.", min=0.01)
    ] = None,
    shared_tokens: Annotated[float, typer.Option(help="What the shared tier holds.")] = inf,
    shared_backend_gbps: Annotated[
        float, typer.Option(help="GB/s of that tier, for all replicas together.", min=0.01)
    ] = inf,
) -> None:
    """Replay sessions through policies, print a table and write JSON."""
    specs = list(POLICIES) if policies == "all" else policies.split(",")
    try:
        preset = preset_of(hardware)
        for spec in specs:
            make_policy(spec, Random(0))  # noqa: S311
        shared = None
        if shared_gbps is not None:
            shared = SharedTierSize.of(preset, shared_gbps, shared_tokens, shared_backend_gbps)
        sessions = prepare(
            read_sessions(trace),
            preset,
            part=part,
            max_think_s=max_think_s,
            shared_prefix=shared_prefix,
            thick_ratio=thick_ratio,
        )
    except (OSError, ValueError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    gc.freeze()
    progress = Console(stderr=True, highlight=False)
    results = []
    for one_load in map(float, load.split(",")):
        for one_seed in map(int, seed.split(",")):
            setting = Setting(
                hardware=preset,
                replicas=replicas,
                load=one_load,
                seed=one_seed,
                end_s=minutes * 60,
                warm_up_s=warm_up_minutes * 60,
                merged=merged_blocks,
                open_loop=open_loop,
                add_replica_at_s=None if add_replica_at is None else add_replica_at * 60,
                shared=shared,
            )
            for spec in specs:
                began_s = time.process_time()
                result = simulate(spec, sessions, setting)
                results.append(result)
                progress.print(
                    f"{spec}, load {one_load:g}, seed {one_seed}: TTFT p90 "
                    f"{result.ttft_s.p90:.2f} s, in {time.process_time() - began_s:.0f} s of CPU"
                )
    print_table(results, COLUMNS, least_width=200)
    for result in results:
        if result.joining:
            print_joining(result, result.joining)
    if json_out:
        rows = [result.row() for result in results]
        write_results(json_out, given_command("benchmarks.simulate"), rows)


if __name__ == "__main__":
    typer.run(main)

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
from benchmarks.placement_table import print_placement
from benchmarks.prepared_sessions import Bursts, prepare
from benchmarks.results import given_command, write_results
from benchmarks.simulator.presets import PRESETS, preset_of
from benchmarks.simulator.shared_tier import SharedTierSize
from benchmarks.simulator.simulation import Setting, simulate
from benchmarks.trace_options import Part
from benchmarks.traces import read_sessions


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
    thick_ratio: Annotated[float, typer.Option(help="Share of sessions that send bursts.")] = 0.0,
    burst_size: Annotated[
        int, typer.Option(help="Requests of a burst; 0 for the same sessions without.", min=0)
    ] = 8,
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
            bursts=Bursts(thick_ratio, burst_size),
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
    print_placement(results)
    if json_out:
        rows = [result.row() for result in results]
        write_results(json_out, given_command("benchmarks.simulate"), rows)


if __name__ == "__main__":
    typer.run(main)

"""Replays a day of agents' traffic through autoscaling policies on a virtual clock.

    python -m benchmarks.autoscale --trace FILE --json OUT
    python -m benchmarks.autoscale --trace FILE --suggest

All of them route alike, by this project's own routing. The day (benchmarks/simulator/day.py) is
compressed to a few hours, with a night, a ramp, a plateau on which the system prompt changes, a
spike, a time of patient sessions whose KV outgrows the memory, and another night. A comparison of
all takes under 8 minutes on one core. Settings may be changed: `ray-serve:target_ongoing=4`.
"""

import gc
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.autoscalers.registry import AUTOSCALERS, make_autoscaler
from benchmarks.autoscalers.setting import Setting
from benchmarks.prepared_sessions import NO_BURSTS, prepare
from benchmarks.results import given_command, write_results
from benchmarks.simulated_day import Result, block_size, simulate_day
from benchmarks.simulated_table import print_table
from benchmarks.simulator.presets import PRESETS, preset_of
from benchmarks.suggest import suggest
from benchmarks.suggestion_report import print_suggestion, rows_of
from benchmarks.trace_options import Part
from benchmarks.trace_session import TraceSession
from benchmarks.traces import read_sessions


def simulate(spec: str, sessions: list[TraceSession], setting: Setting) -> Result:
    """Run the autoscaler that is described so through the day."""
    autoscaler = make_autoscaler(spec, block_size(sessions, setting), setting)
    return simulate_day(spec, autoscaler, sessions, setting)


def main(
    trace: Annotated[Path, typer.Option(help="Sessions to replay; see benchmarks/traces.py.")],
    json_out: Annotated[Path | None, typer.Option("--json", help="File for the results.")] = None,
    policies: Annotated[str, typer.Option(help="Names with commas between them, or all.")] = "all",
    plateau: Annotated[int, typer.Option(help="Live sessions on the plateau.")] = 48,
    hours: Annotated[float, typer.Option(help="Virtual time into which the day is put.")] = 6.0,
    replicas: Annotated[int, typer.Option(help="Replicas at the start.")] = 1,
    max_replicas: Annotated[int, typer.Option(help="At most so many.")] = 16,
    start_s: Annotated[float, typer.Option(help="How long a replica takes to start.")] = 180.0,
    seed: Annotated[
        str, typer.Option(help="The same seed gives the same result; or several.")
    ] = "1",
    hardware: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "kimi-b200-host",
    merged_blocks: Annotated[int, typer.Option(help="Recorded blocks in one; 1 is exact.")] = 16,
    suggest_settings: Annotated[
        bool, typer.Option("--suggest", help="Propose settings for these sessions instead.")
    ] = False,
) -> None:
    """Replay a day through autoscaling policies, print a table and write JSON."""
    specs = list(AUTOSCALERS) if policies == "all" else policies.split(",")
    try:
        preset = preset_of(hardware)
        settings = [
            Setting(
                hardware=preset,
                plateau=plateau,
                day_s=hours * 3600,
                replicas=replicas,
                max_replicas=max_replicas,
                start_s=start_s,
                seed=one_seed,
                merged=merged_blocks,
            )
            for one_seed in map(int, seed.split(","))
        ]
        for spec in specs:
            make_autoscaler(spec, 1, settings[0])
        sessions = prepare(
            read_sessions(trace),
            preset,
            part=Part.ALL,
            max_think_s=300.0,
            shared_prefix=True,
            bursts=NO_BURSTS,
        )
    except (OSError, ValueError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    gc.freeze()
    progress = Console(stderr=True, highlight=False)
    if suggest_settings:
        found = suggest(sessions, settings[0], progress.print)
        print_suggestion(found)
        if json_out:
            write_results(json_out, given_command("benchmarks.autoscale"), rows_of(found))
        return
    results = []
    for setting in settings:
        for spec in specs:
            began_s = time.process_time()
            results.append(simulate(spec, sessions, setting))
            progress.print(
                f"{spec}, seed {setting.seed}: in {time.process_time() - began_s:.0f} s of CPU"
            )
    print_table(results, COLUMNS, least_width=140)
    if json_out:
        rows = [asdict(result) for result in results]
        write_results(json_out, given_command("benchmarks.autoscale"), rows)


COLUMNS = (
    ("policy", lambda one: one.policy),
    ("seed", lambda one: str(one.seed)),
    ("replica hours", lambda one: f"{one.replica_hours:.1f}"),
    ("SLO misses", lambda one: str(one.slo_misses)),
    ("of requests", lambda one: str(one.requests)),
    ("TTFT p90 s", lambda one: f"{one.ttft_s.p90:.2f}"),
    ("hit", lambda one: f"{one.hit_ratio:.3f}"),
    ("evicted", lambda one: f"{one.misses.evicted:.3f}"),
    ("elsewhere", lambda one: f"{one.misses.elsewhere:.3f}"),
    ("changes", lambda one: str(one.changes)),
    ("oscillations", lambda one: str(one.oscillations)),
)
"""What the table shows of a result."""


if __name__ == "__main__":
    typer.run(main)

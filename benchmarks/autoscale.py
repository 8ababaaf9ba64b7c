"""Replays a day of agents' traffic through autoscaling policies on a virtual clock.

    python -m benchmarks.autoscale --trace FILE --json OUT

All of them route alike, by this project's own routing. The day (benchmarks/simulator/day.py) is
compressed to a few hours, with a night, a ramp, a plateau on which the system prompt changes, a
spike, a time of patient sessions whose KV outgrows the memory, and another night. A comparison of
all takes under 8 minutes on one core. Settings may be changed: `ray-serve:target_ongoing=4`.
"""

import gc
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.autoscalers.autoscaler import Autoscaler
from benchmarks.autoscalers.operator import Operator, oscillations
from benchmarks.autoscalers.registry import AUTOSCALERS, make_autoscaler
from benchmarks.autoscalers.setting import Setting
from benchmarks.peers.warmturn import make_warmturn
from benchmarks.prepared_sessions import NO_BURSTS, prepare
from benchmarks.results import given_command, write_results
from benchmarks.simulated_table import print_table
from benchmarks.simulator.day import Day
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.measurements import TTFT_SLO_S, Measurements
from benchmarks.simulator.presets import PRESETS, preset_of
from benchmarks.simulator.replica_factory import ReplicaFactory
from benchmarks.simulator.result import Misses, Percentiles
from benchmarks.simulator.turn import Turn
from benchmarks.trace_options import Part
from benchmarks.trace_session import TraceSession
from benchmarks.traces import read_sessions


@dataclass(frozen=True, slots=True)
class Result:
    """One day. `slo_misses` are requests without a first token within the SLO."""

    policy: str
    seed: int
    replica_hours: float
    slo_misses: int
    hit_ratio: float
    changes: int
    oscillations: int
    requests: int
    ttft_s: Percentiles
    misses: Misses
    history: list[tuple[float, int, str]]
    """When the number of replicas changed, to what, and why."""


class _Watched(Measurements):
    """Shows arrivals to the autoscaler."""

    def __init__(self, autoscaler: Autoscaler) -> None:
        super().__init__(warm_up_s=0.0)
        self._autoscaler = autoscaler

    def arrived(self, turn: Turn, now_s: float) -> None:
        """A client sent a request."""
        super().arrived(turn, now_s)
        self._autoscaler.arrived(turn, now_s)


def simulate(spec: str, sessions: list[TraceSession], setting: Setting) -> Result:
    """Run one autoscaler through the day."""
    block_size = sessions[0].block_size * setting.merged
    factory = ReplicaFactory(setting.hardware, block_size)
    autoscaler = make_autoscaler(spec, block_size, setting)
    policy = make_warmturn(Random(setting.seed))  # noqa: S311  # a simulation
    operator = Operator(factory, autoscaler, policy.router, setting)
    measured = _Watched(autoscaler)
    day = Day(sessions, setting.plateau, setting.day_s, setting.seed, setting.merged)
    engines = [factory.make() for _ in range(setting.replicas)]
    Fleet(engines, policy, day, measured, operator).run(setting.day_s)
    found = measured.result(spec, setting.replicas, setting.plateau, setting.seed, setting.day_s)
    late = [one.ttft_s(setting.day_s) > TTFT_SLO_S for one in measured.records]
    return Result(
        policy=spec,
        seed=setting.seed,
        replica_hours=operator.replica_s / 3600,
        slo_misses=sum(late),
        hit_ratio=found.hit_ratio,
        changes=len(operator.changes),
        oscillations=oscillations(operator.changes),
        requests=found.requests,
        ttft_s=found.ttft_s,
        misses=found.misses,
        history=[(one.at_s, one.after, one.reason) for one in operator.changes],
    )


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

"""What a day is simulated with."""

from dataclasses import dataclass

from benchmarks.simulator.presets import Hardware


@dataclass(frozen=True, slots=True)
class Setting:
    """What all autoscalers are simulated with; the first `replicas` are there from the start."""

    hardware: Hardware
    plateau: int
    day_s: float
    replicas: int
    max_replicas: int
    start_s: float
    seed: int
    merged: int

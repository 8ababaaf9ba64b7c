"""Recorded sessions, made ready for simulated hardware."""

from dataclasses import dataclass

from benchmarks.simulator.presets import Hardware
from benchmarks.trace_options import Part, add_bursts, fit, part_of, share_prefix, shrink
from benchmarks.trace_session import TraceSession


@dataclass(frozen=True, slots=True)
class Bursts:
    """Which share of the sessions sends bursts, and of how many requests."""

    share_ratio: float
    size: int


NO_BURSTS = Bursts(0.0, 0)


def prepare(
    sessions: list[TraceSession],
    hardware: Hardware,
    *,
    part: Part,
    max_think_s: float,
    shared_prefix: bool,
    bursts: Bursts,
) -> list[TraceSession]:
    """Make the sessions ready for the hardware. Raises ValueError where none is left."""
    sessions = shrink(part_of(sessions, part), hardware.shrink_ratio)
    if shared_prefix:
        sessions = share_prefix(sessions)
    sessions = fit(sessions, hardware.max_context_tokens, max_think_s)
    if not sessions:
        msg = "no session is left that fits the model's context"
        raise ValueError(msg)
    return add_bursts(
        sessions, bursts.share_ratio, bursts.size, hardware.max_context_tokens, seed=0
    )

"""A request that an engine has taken."""

from dataclasses import dataclass

from benchmarks.simulator.progress import Hit
from benchmarks.simulator.turn import Turn


@dataclass(slots=True)
class Running:
    """It holds `blocks` of GPU memory, and `left_tokens` of its prompt are to be prefilled."""

    turn: Turn
    blocks: int
    hit: Hit
    admitted_at_s: float
    uncached_tokens: int
    left_tokens: float
    prefill_began_at_s: float = 0.0

"""What an engine did with a request."""

from dataclasses import dataclass

from benchmarks.simulator.turn import Turn


@dataclass(frozen=True, slots=True)
class Hit:
    """How much of a prompt's beginning was cached: in GPU memory, and from there in CPU memory."""

    gpu_blocks: int
    host_blocks: int

    @property
    def blocks(self) -> int:
        """Blocks in any memory."""
        return self.gpu_blocks + self.host_blocks


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request was taken, and that much of its prompt was cached.

    Until then it waited for prefills, and apart from that for memory.
    """

    turn: Turn
    hit: Hit
    prefills_s: float
    memory_s: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A request's prefill ended."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Finished:
    """A request's answer is complete."""

    turn: Turn


Progress = Admitted | FirstToken | Finished

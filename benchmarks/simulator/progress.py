"""What an engine did with a request."""

from dataclasses import dataclass

from benchmarks.simulator.turn import Turn


@dataclass(frozen=True, slots=True)
class Hit:
    """How much of a prompt's beginning was cached.

    In GPU memory, and from there in CPU memory, where the shared blocks were fetched for this
    request from the shared tier.
    """

    gpu_blocks: int
    host_blocks: int
    shared_blocks: int = 0

    @property
    def restored_blocks(self) -> int:
        """Blocks that are copied from CPU memory."""
        return self.host_blocks + self.shared_blocks

    @property
    def blocks(self) -> int:
        """Blocks in any memory."""
        return self.gpu_blocks + self.restored_blocks


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request was taken, and that much of its prompt was cached.

    Until then it waited for prefills, for the shared tier, and apart from these for memory.
    """

    turn: Turn
    hit: Hit
    prefills_s: float
    memory_s: float
    fetch_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A request's prefill ended."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Finished:
    """A request's answer is complete."""

    turn: Turn


Progress = Admitted | FirstToken | Finished

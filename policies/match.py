"""How much of a prompt is held where."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """How much of a prompt's beginning a replica can reuse, in blocks.

    The first `gpu_blocks` are in its GPU memory or expected there, the next `cpu_blocks` in its
    CPU memory, the next `shared_blocks` in the shared tier.
    """

    gpu_blocks: int = 0
    cpu_blocks: int = 0
    shared_blocks: int = 0

    @property
    def blocks(self) -> int:
        """Blocks in any tier."""
        return self.gpu_blocks + self.cpu_blocks + self.shared_blocks


NO_MATCH = Match()

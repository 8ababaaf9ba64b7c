"""What became of one request in a simulation."""

from dataclasses import dataclass

from policies.types import ReplicaId


@dataclass(slots=True)
class RequestRecord:
    """Tokens of its prompt are hits or one kind of miss.

    `thick` says that its session sends bursts. It was turned away `refusals` times. It waited at
    the router, and in the engine for others' prefills and for memory.
    """

    arrived_at_s: float
    prompt_tokens: int
    output_tokens: int
    thick: bool
    replica: ReplicaId | None = None
    placed_at_s: float | None = None
    gpu_tokens: int = 0
    host_tokens: int = 0
    shared_tokens: int = 0
    evicted_tokens: int = 0
    elsewhere_tokens: int = 0
    first_at_s: float | None = None
    ended_at_s: float | None = None
    refusals: int = 0
    router_s: float = 0.0
    prefills_s: float = 0.0
    memory_s: float = 0.0

    @property
    def hit_tokens(self) -> int:
        """Tokens that were in any memory."""
        return self.gpu_tokens + self.host_tokens + self.shared_tokens

    @property
    def first_seen_tokens(self) -> int:
        """Tokens that no memory could have had."""
        return self.prompt_tokens - self.hit_tokens - self.evicted_tokens - self.elsewhere_tokens

    def ttft_s(self, now_s: float) -> float:
        """Return its time to first token; if there was none, what it has waited by `now_s`."""
        return (now_s if self.first_at_s is None else self.first_at_s) - self.arrived_at_s

    @property
    def tokens_per_s(self) -> float | None:
        """How fast its answer came, from the first token on; None for one of a single token."""
        if self.first_at_s is None or self.ended_at_s is None or self.output_tokens < 2:
            return None
        return (self.output_tokens - 1) / (self.ended_at_s - self.first_at_s)

    @property
    def e2e_s(self) -> float | None:
        """Seconds to the end of its answer."""
        return None if self.ended_at_s is None else self.ended_at_s - self.arrived_at_s

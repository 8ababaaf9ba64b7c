"""What a simulated autoscaler can be, and what it sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.simulator.turn import Turn
from policies.router import Router
from policies.types import ReplicaId, ReplicaState
from policies.victims import Seat


@dataclass(frozen=True, slots=True)
class View:
    """A fleet as it is: who serves, how many are starting, and what the router knows.

    `states` and `seats` are of the same replicas in the same order, the oldest first; `target` is
    how many there should be by now.
    """

    states: Sequence[ReplicaState]
    seats: tuple[Seat, ...]
    starting: int
    target: int
    router: Router

    @property
    def running(self) -> int:
        """Requests that run."""
        return sum(state.running for state in self.states)

    @property
    def waiting(self) -> int:
        """Requests that wait, in engines or at the router."""
        return sum(state.waiting for state in self.states) + len(self.router.waiting)

    @property
    def kv_use_ratios(self) -> list[float]:
        """The part of each replica's GPU memory that requests use: vLLM's kv_cache_usage_perc."""
        return [1 - state.free_blocks / state.total_blocks for state in self.states]


@dataclass(frozen=True, slots=True)
class Target:
    """How many replicas there should be, and who of them should drain."""

    replicas: int
    draining: tuple[ReplicaId, ...] = ()
    reason: str = ""


class Autoscaler(Protocol):
    """Decides every ten seconds; is shown each request when it arrives."""

    def arrived(self, turn: Turn, now_s: float) -> None:
        """Note a request."""

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be."""


class Blind:
    """What autoscalers have in common that take no notice of requests."""

    def arrived(self, turn: Turn, now_s: float) -> None:
        """Take no notice."""

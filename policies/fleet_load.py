"""How much a fleet has to do, over the last moments: one moment says little of bursty traffic."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

from policies.candidate import pinned_blocks, requests
from policies.in_flight import InFlight
from policies.types import ReplicaState
from policies.waiting import Waiting


@dataclass(frozen=True, slots=True)
class FleetLoad:
    """What is in flight in all replicas and at the router.

    `requests` run or wait, and `held_tokens` of KV they hold or wait for. `backlog_tokens` of their
    prompts are still to be prefilled.
    """

    requests: float = 0.0
    held_tokens: float = 0.0
    backlog_tokens: float = 0.0


def dispersion_ratio(requests: Sequence[float]) -> float:
    """Return variance by mean of the requests of n replicas: 1 - 1/n if they fell at random."""
    return pvariance(requests) / fmean(requests) if any(requests) else 0.0


class LoadWindow:
    """Samples of the last `window_s`, taken at about equal intervals. Time only goes on."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._samples: deque[tuple[float, FleetLoad]] = deque()

    def add(self, load: FleetLoad, now_s: float) -> None:
        """Add a sample."""
        self._samples.append((now_s, load))
        while self._samples[0][0] <= now_s - self.window_s:
            self._samples.popleft()

    def mean(self) -> FleetLoad:
        """Return the mean of the samples; of none, no load."""
        loads = [load for _, load in self._samples]
        count = max(1, len(loads))
        return FleetLoad(
            sum(load.requests for load in loads) / count,
            sum(load.held_tokens for load in loads) / count,
            sum(load.backlog_tokens for load in loads) / count,
        )


def fleet_load(
    states: Sequence[ReplicaState], in_flight: InFlight, waiting: Waiting, block_size: int
) -> FleetLoad:
    """Return what replicas have, by their own report or by ours, and what waits at the router."""
    loads = [(state, in_flight.load(state.replica)) for state in states]
    parked = list(waiting.bookings())
    blocks = sum(max(load.blocks, pinned_blocks(state, load)) for state, load in loads)
    return FleetLoad(
        requests=sum(requests(state, load) for state, load in loads) + len(parked),
        held_tokens=(blocks + sum(one.blocks for one in parked)) * block_size,
        backlog_tokens=sum(load.uncached_tokens for _, load in loads),
    )

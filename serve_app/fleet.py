"""The replicas as they last reported themselves, and how gateways reach them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from policies.rates import (
    FETCH_TOKENS_PER_S,
    HOLD_S,
    PREFILL_TOKENS_PER_S,
    RESTORE_TOKENS_PER_S,
)
from policies.types import ReplicaId, ReplicaState
from serve_app.route_request import Places

MUCH = 2**30
"""More of anything than a replica has."""


@dataclass(frozen=True, slots=True)
class _Report:
    state: ReplicaState
    block_size: int
    at_s: float


class Fleet:
    """What is known of each replica. `is_synced` tells whether the index knows its blocks.

    `places` is what a gateway said last of the replicas it reaches.
    """

    def __init__(self, is_synced: Callable[[ReplicaId], bool]) -> None:
        self.places: Places = {}
        self._is_synced = is_synced
        self._reports: dict[ReplicaId, _Report] = {}

    def __len__(self) -> int:
        """How many replicas report."""
        return len(self._reports)

    def __iter__(self) -> Iterator[ReplicaId]:
        """Those that report."""
        return iter(self._reports)

    @property
    def block_size(self) -> int | None:
        """Tokens per KV block, None while nobody knows it."""
        return next((report.block_size for report in self._reports.values()), None)

    def report(self, state: ReplicaState, block_size: int, now_s: float) -> None:
        """Take a replica's word for its state."""
        self._reports[state.replica] = _Report(state, block_size, now_s)

    def forget(self, replica: ReplicaId) -> None:
        """Forget a replica that is gone, until it reports again."""
        self._reports.pop(replica, None)

    def silent(self, now_s: float, after_s: float) -> list[ReplicaId]:
        """Return those that reported nothing in the last `after_s`."""
        reports = self._reports.items()
        return [replica for replica, report in reports if now_s - report.at_s > after_s]

    def candidates(self) -> list[ReplicaState]:
        """Return the states of the replicas that gateways reach, of those that report if any does.

        One that is silent while others report is not to be trusted with a request.
        """
        return [self.state(one) for one in self.places if one in self._reports] or [
            _unknown(one) for one in self.places
        ]

    def state(self, replica: ReplicaId) -> ReplicaState:
        """Return the state of a replica that reports; gateways may let fewer requests through."""
        state = self._reports[replica].state
        limit = self.places.get(replica, state.max_requests)
        most = min(limit, state.max_requests)
        return replace(state, max_requests=most, synced=self._is_synced(replica))


def _unknown(replica: ReplicaId) -> ReplicaState:
    """Return what is assumed of a replica while none reports: that it has nothing to do."""
    return ReplicaState(
        replica,
        generation=0,
        total_blocks=MUCH,
        free_blocks=MUCH,
        running=0,
        waiting=0,
        max_requests=MUCH,
        prefill_tokens_per_s=PREFILL_TOKENS_PER_S,
        restore_tokens_per_s=RESTORE_TOKENS_PER_S,
        fetch_tokens_per_s=FETCH_TOKENS_PER_S,
        hold_s=HOLD_S,
        synced=False,
    )

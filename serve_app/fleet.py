"""The replicas as they last reported themselves, and how gateways reach them."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from statistics import median

from policies.rates import (
    FETCH_TOKENS_PER_S,
    HOLD_S,
    PREFILL_TOKENS_PER_S,
    RESTORE_TOKENS_PER_S,
)
from policies.types import ReplicaId, ReplicaState, RequestId
from policies.victims import Seat
from serve_app.replica_report import ReplicaReport
from serve_app.route_request import GatewaySeat, Places

MUCH = 2**30
"""More of anything than a replica has."""


class Fleet:
    """What is known of each replica.

    `is_synced` tells whether the index knows its blocks, `is_draining` whether it is to get no more
    turns. `places` is what a gateway said last of the replicas it reaches.
    """

    def __init__(
        self, is_synced: Callable[[ReplicaId], bool], is_draining: Callable[[ReplicaId], bool]
    ) -> None:
        self.places: Places = {}
        self._is_synced = is_synced
        self._is_draining = is_draining
        self._reports: dict[ReplicaId, ReplicaReport] = {}
        self._heard_at_s: dict[ReplicaId, float] = {}
        self._gateways: dict[str, tuple[GatewaySeat, float]] = {}
        """Each where it is, and when it was last heard of."""

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

    def report(self, report: ReplicaReport, now_s: float) -> None:
        """Take a replica's word for its state."""
        self._reports[report.state.replica] = report
        self._heard_at_s[report.state.replica] = now_s

    def greet(self, seat: GatewaySeat, now_s: float) -> None:
        """Note that a gateway runs there."""
        self._gateways[seat.gateway] = seat, now_s

    def is_newest(self, seat: GatewaySeat) -> bool:
        """Tell whether no gateway is known that started after this one."""
        return all(seat.started_at_s >= one.started_at_s for one, _ in self._gateways.values())

    def forget_gateways(self, before_s: float) -> None:
        """Forget those last heard of before then."""
        gateways = self._gateways.items()
        self._gateways = {one: known for one, known in gateways if known[1] >= before_s}

    def turns(self, replica: ReplicaId) -> Collection[RequestId]:
        """Return the turns that a replica has, of those that report."""
        return self._reports[replica].turns

    def has(self, request: RequestId) -> bool:
        """Tell whether a turn runs on any of those that report."""
        return any(request in report.turns for report in self._reports.values())

    def forget(self, replica: ReplicaId) -> None:
        """Forget a replica that is gone, until it reports again."""
        self._reports.pop(replica, None)
        self._heard_at_s.pop(replica, None)

    def silent(self, now_s: float, after_s: float) -> list[ReplicaId]:
        """Return those that reported nothing in the last `after_s`."""
        heard_at_s = self._heard_at_s.items()
        return [replica for replica, at_s in heard_at_s if now_s - at_s > after_s]

    def candidates(self) -> list[ReplicaState]:
        """Return the states of the replicas that gateways reach, of those that report if any does.

        One that is silent while others report is not to be trusted with a request.
        """
        return [self.state(one) for one in self.places if one in self._reports] or [
            _unknown(one) for one in self.places
        ]

    def state(self, replica: ReplicaId) -> ReplicaState:
        """Return the state of a replica that reports.

        Gateways may let fewer requests through than it takes. While it has prefilled nothing it is
        believed to be as fast as those that have.
        """
        report = self._reports[replica]
        state = report.state
        limit = self.places.get(replica, state.max_requests)
        rate = state.prefill_tokens_per_s
        return replace(
            state,
            max_requests=min(limit, state.max_requests),
            prefill_tokens_per_s=rate if report.is_measured else self._usual_rate(rate),
            draining=self._is_draining(replica),
            synced=self._is_synced(replica),
        )

    def states(self) -> list[ReplicaState]:
        """Return the states of all that report."""
        return [self.state(one) for one in self._reports]

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Where those run that report, the oldest first, and what else of ours runs there."""
        reports = sorted(self._reports.values(), key=lambda report: report.state.generation)
        on_node = Counter(report.node.node for report in reports)
        on_node.update(gateway.node for gateway, _ in self._gateways.values())
        return tuple(
            Seat(one.state.replica, one.node.node, on_node[one.node.node], one.node.is_head)
            for one in reports
        )

    @property
    def cpu_tokens(self) -> int:
        """Tokens of KV that fit in a replica's CPU memory, by those that know it."""
        return _usual(one.cpu_tokens for one in self._reports.values())

    @property
    def shared_tokens(self) -> int:
        """Tokens of KV that fit in the shared tier, by those that know it."""
        return _usual(one.shared_tokens for one in self._reports.values())

    @property
    def memory_tokens(self) -> int:
        """Tokens of KV that fit in all memories together, each counted once."""
        own = sum(
            max(one.state.total_blocks * one.block_size, one.cpu_tokens or self.cpu_tokens)
            for one in self._reports.values()
        )
        return max(own, self.shared_tokens)

    def cpu_blocks(self, replica: ReplicaId) -> int:
        """Return how many blocks fit in the CPU memory of a replica that reports."""
        report = self._reports[replica]
        return report.cpu_tokens // report.block_size

    def _usual_rate(self, guess_tokens_per_s: float) -> float:
        reports = self._reports.values()
        measured = [one.state.prefill_tokens_per_s for one in reports if one.is_measured]
        return median(measured) if measured else guess_tokens_per_s


def _usual(sizes: Iterable[int]) -> int:
    """Return the middle one of those that are known, 0 if none is."""
    known = [size for size in sizes if size]
    return round(median(known)) if known else 0


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

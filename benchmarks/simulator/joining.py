"""What a replica that joins does to a fleet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from benchmarks.simulator.request_record import RequestRecord
from policies.types import ReplicaId

_WINDOW_S = 600.0
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Joining:
    """Hit ratios are of all replicas, in the ten minutes before a replica joined and after.

    `shares` are of the requests that were placed in each minute after that: the new one's part,
    relative to an even one.
    """

    at_s: float
    hit_ratio_before: float
    hit_ratio_after: float
    shares: list[float]

    @classmethod
    def of(
        cls,
        records: Sequence[RequestRecord],
        replica: ReplicaId,
        at_s: float,
        *,
        replicas: int,
        end_s: float,
    ) -> Self:
        """Look at a run that ended at `end_s`, with so many replicas, the new one among them."""
        after_s = [
            (one.placed_at_s - at_s, one.replica == replica)
            for one in records
            if one.placed_at_s is not None
        ]
        shares = []
        for minute in range(int((end_s - at_s) / _MINUTE_S)):
            own = [is_own for passed_s, is_own in after_s if passed_s // _MINUTE_S == minute]
            shares.append(sum(own) * replicas / len(own) if own else 0.0)
        return cls(
            at_s,
            _hit_ratio(records, at_s - _WINDOW_S, at_s),
            _hit_ratio(records, at_s, at_s + _WINDOW_S),
            shares,
        )


def _hit_ratio(records: Sequence[RequestRecord], begin_s: float, end_s: float) -> float:
    """Return the hit ratio of requests that arrived within a time."""
    within = [
        one for one in records if begin_s <= one.arrived_at_s < end_s and one.first_at_s is not None
    ]
    return sum(one.hit_tokens for one in within) / (sum(one.prompt_tokens for one in within) or 1)

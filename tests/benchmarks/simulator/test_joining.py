"""What is told of a replica that joins."""

import pytest

from benchmarks.simulator.joining import Joining
from benchmarks.simulator.request_record import RequestRecord
from policies.types import ReplicaId


def make_record(at_s: float, replica: str, hit_tokens: int) -> RequestRecord:
    return RequestRecord(
        arrived_at_s=at_s,
        prompt_tokens=100,
        output_tokens=10,
        thick=False,
        replica=ReplicaId(replica),
        placed_at_s=at_s,
        gpu_tokens=hit_tokens,
        first_at_s=at_s + 1,
    )


def test_it_is_compared_with_the_time_before() -> None:
    """Hits of ten minutes each way, and the new one's part of what was placed in each minute."""
    records = [
        make_record(300.0, "old", 0),  # too early to matter
        make_record(1000.0, "old", 90),
        make_record(1210.0, "old", 90),
        make_record(1220.0, "new", 10),
        make_record(1230.0, "old", 80),
        make_record(1260.0, "new", 80),
        make_record(1900.0, "new", 0),  # too late for the hit ratio
    ]
    joining = Joining.of(records, ReplicaId("new"), 1200.0, replicas=3, end_s=1390.0)
    assert joining.hit_ratio_before == pytest.approx(0.9)
    assert joining.hit_ratio_after == pytest.approx(0.65)
    assert joining.shares == [pytest.approx(1.0), pytest.approx(3.0), 0.0]

"""What is believed of the replicas."""

from collections.abc import Collection
from typing import Any

from policies.types import ReplicaId
from policies.victims import Seat
from serve_app.fleet import Fleet
from serve_app.replica_report import Node, ReplicaReport
from serve_app.route_request import GatewaySeat
from tests.policies.makers import make_state

R1, R2, R3 = (ReplicaId(f"r{number}") for number in (1, 2, 3))


def make_fleet(*reports: ReplicaReport, draining: Collection[ReplicaId] = ()) -> Fleet:
    """Return a fleet that reported at 0 s, and is in sync."""
    fleet = Fleet(lambda _: True, draining.__contains__)
    fleet.places = {report.state.replica: 64 for report in reports}
    for report in reports:
        fleet.report(report, 0.0)
    return fleet


def make_report(
    replica: str,
    *,
    node: str = "n1",
    is_measured: bool = True,
    cpu_tokens: int = 0,
    **state: Any,
) -> ReplicaReport:
    """Return a report without news."""
    made, place = make_state(replica, **state), Node(node, is_head=node == "head")
    return ReplicaReport(
        made, place, 4, is_measured, cpu_tokens, 0, frozenset(), (), (), None, None
    )


def test_a_replica_that_did_nothing_yet_is_as_fast_as_the_others() -> None:
    """Its guess counts only while nobody has measured anything."""
    new = make_report("r3", is_measured=False, prefill_tokens_per_s=5000.0)
    known = [make_report(f"r{i}", prefill_tokens_per_s=1000.0 * i) for i in (1, 2)]
    assert make_fleet(*known, new).state(R3).prefill_tokens_per_s == 1500.0
    assert make_fleet(new).state(R3).prefill_tokens_per_s == 5000.0
    assert make_fleet(*known, new).state(R1).prefill_tokens_per_s == 1000.0


def test_the_lower_limit_counts() -> None:
    """Of what gateways let through and what the engine runs at a time."""
    fleet = make_fleet(make_report("r1", max_requests=16), make_report("r2", max_requests=256))
    assert [fleet.state(one).max_requests for one in (R1, R2)] == [16, 64]


def test_who_is_silent_gets_nothing_while_others_report() -> None:
    """While none reports, all get something."""
    fleet = make_fleet(make_report("r1"), make_report("r2"))
    fleet.report(make_report("r2"), 9.0)
    assert fleet.silent(10.0, after_s=5.0) == [R1]
    fleet.forget(R1)
    assert [one.replica for one in fleet.candidates()] == [R2]
    fleet.forget(R2)
    assert [one.replica for one in fleet.candidates()] == [R1, R2]


def test_where_replicas_are() -> None:
    """The oldest come first, with how many of them share their node."""
    fleet = make_fleet(
        make_report("r1", node="n2", generation=3),
        make_report("r2", node="head", generation=2),
        make_report("r3", node="n2", generation=1),
    )
    assert fleet.seats == (
        Seat(R3, "n2", 2),
        Seat(R2, "head", 1, is_head_node=True),
        Seat(R1, "n2", 2),
    )


def test_gateways_take_part_of_their_node() -> None:
    """Ray counts them when it chooses whom to stop; one that is silent is gone."""
    fleet = make_fleet(make_report("r1", node="n1"), make_report("r2", node="n2"))
    fleet.greet(GatewaySeat("g1", "n2", 0.0), 1.0)
    fleet.greet(GatewaySeat("g2", "n3", 0.0), 5.0)
    fleet.greet(GatewaySeat("g1", "n2", 0.0), 5.0)
    assert fleet.seats == (Seat(R1, "n1", 1), Seat(R2, "n2", 2))
    fleet.forget_gateways(6.0)
    assert fleet.seats == (Seat(R1, "n1", 1), Seat(R2, "n2", 1))


def test_cpu_memory_is_as_large_as_those_say_who_know_it() -> None:
    """One whose CPU memory was not read yet does not know."""
    fleet = make_fleet(make_report("r1", cpu_tokens=500), make_report("r2"))
    assert fleet.cpu_tokens == 500
    assert make_fleet(make_report("r2")).cpu_tokens == 0


def test_all_memory_there_is() -> None:
    """A replica that has restored nothing yet has as much CPU memory as the others."""
    known = make_report("r1", total_blocks=25, cpu_tokens=1000)
    new = make_report("r2", total_blocks=25)
    assert make_fleet(known, new).memory_tokens == 2000
    assert make_fleet(make_report("r1", total_blocks=25)).memory_tokens == 100


def test_a_draining_replica() -> None:
    """It is told as such until it may take turns again."""
    fleet = make_fleet(make_report("r1"), make_report("r2"), draining={R1})
    assert [one.draining for one in fleet.candidates()] == [True, False]

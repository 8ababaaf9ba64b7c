"""Requests wait at the router while the replica of their choice has no room."""

from random import Random

from policies.router import Router
from policies.tunables import Tunables
from policies.types import Decision, Park, ReplicaState, RequestId
from tests.policies.makers import make_request, make_state

FULL = make_state("r1", total_blocks=100, free_blocks=0)
FREE = make_state("r1", total_blocks=100, free_blocks=100)


def make_router(max_park_s: float = 30.0) -> Router:
    """Return a router at which requests wait for so long at most."""
    return Router(Tunables(max_park_s=max_park_s))


def park(router: Router, name: str, at_s: float, blocks: int = 50) -> None:
    """Let a request of these blocks wait from then on."""
    request = make_request(
        name, f"s-{name}", hashes=[], prompt_tokens=blocks * 10, arrived_at_s=at_s
    )
    assert isinstance(router.decide(request, [FULL], at_s, Random(0)), Park)


def decided(router: Router, now_s: float, *states: ReplicaState) -> list[Decision]:
    """Return the decisions on those that the router lets go."""
    made = router.place_waiting(states, now_s, Random(0))
    decisions = [one for one in made if isinstance(one, Decision)]
    assert len(decisions) == len(made)
    return decisions


def placed(router: Router, state: ReplicaState, now_s: float) -> list[str]:
    """Return whom the router lets go."""
    return [one.booking.request for one in decided(router, now_s, state)]


def test_nobody_goes_while_there_is_no_room() -> None:
    """Nor is anybody forgotten."""
    router = make_router()
    park(router, "q1", 0)
    assert placed(router, FULL, 1) == []
    assert len(router.waiting) == 1


def test_as_many_go_as_there_is_room_for() -> None:
    """The oldest first; each takes the room that it needs."""
    router = make_router()
    for at_s, name in enumerate(("q1", "q2", "q3")):
        park(router, name, at_s)
    assert placed(router, FREE, 5) == ["q1", "q2"]
    assert placed(router, FREE, 5) == []
    router.end(RequestId("q1"), 6)
    assert placed(router, FREE, 6) == ["q3"]


def test_a_small_request_passes_one_that_does_not_fit() -> None:
    """Room that the first cannot use is not left empty."""
    router = make_router()
    park(router, "big", 0, blocks=90)
    park(router, "small", 1, blocks=10)
    assert placed(router, make_state("r1", total_blocks=100, free_blocks=20), 2) == ["small"]


def test_a_request_that_fits_nowhere_waits_for_an_empty_replica() -> None:
    """It gets all that there is; it needn't wait until its time is up."""
    router = make_router()
    park(router, "q1", 0, blocks=300)
    assert placed(router, make_state("r1", total_blocks=100, free_blocks=99), 1) == []
    assert placed(router, FREE, 1) == ["q1"]


def test_who_waited_long_enough_goes_anyway() -> None:
    """To the best replica, full as it is."""
    router = make_router()
    park(router, "q1", 0)
    park(router, "q2", 10)
    assert placed(router, FULL, 30) == ["q1"]


def test_one_that_ended_waits_no_longer() -> None:
    """Its client left."""
    router = make_router()
    park(router, "q1", 0)
    router.end(RequestId("q1"), 1)
    assert placed(router, FREE, 2) == []
    assert router.in_flight.load(FREE.replica).uncached_tokens == 0


def test_what_waits_costs_the_replica_it_waits_for() -> None:
    """Its tokens are booked there, and replaced by the real booking once it goes."""
    router = make_router()
    park(router, "q1", 0)
    assert router.in_flight.load(FREE.replica).uncached_tokens == 500
    assert placed(router, FREE, 1) == ["q1"]
    assert router.in_flight.load(FREE.replica).uncached_tokens == 500
    assert router.in_flight.load(FREE.replica).blocks == 50


def test_a_change_of_mind() -> None:
    """One that waits for a full replica is decided anew whenever another has more room."""
    router = make_router(max_park_s=1000.0)
    for at_s in range(4):
        park(router, f"q{at_s}", at_s)
    room = [make_state("r2", total_blocks=1000, free_blocks=free) for free in (0, 800, 700, 900)]
    gone = [decided(router, 5, FULL, state) for state in room]
    assert [[(one.booking.request, one.replica) for one in each] for each in gone] == [
        [],
        [("q0", "r2")],
        [],
        [("q1", "r2")],
    ]


def test_what_waits_for_a_replica_that_is_gone_is_decided_anew() -> None:
    """It goes to another one at once."""
    router = make_router()
    park(router, "q1", 0)
    router.forget(FULL.replica, 1)
    other = make_state("r2", total_blocks=100, free_blocks=100)
    assert [one.replica for one in decided(router, 1, other)] == ["r2"]

"""A fleet's story: what each thing that happens does to the next decision."""

from collections.abc import Sequence
from random import Random

from policies.kv_events import EventBatch
from policies.router import Router
from policies.sessions import LastTurn
from policies.tunables import Tunables
from policies.types import (
    Decision,
    Park,
    ReplicaId,
    ReplicaState,
    Request,
    RequestId,
    Rule,
    SessionId,
)
from tests.policies.makers import BLOCK_SIZE, make_hashes, make_request, make_state, make_stored

R1, R2 = ReplicaId("r1"), ReplicaId("r2")


def make_router(**tunables: float) -> Router:
    """Return a router that has heard of two empty replicas."""
    router = Router(Tunables(**tunables))  # type: ignore[arg-type]  # each as its own type
    for replica in (R1, R2):
        router.index.apply(EventBatch(replica, 1, 0, []), 0)
    return router


def make_turn(name: str, *blocks: int, session: str | None = None, at_s: float = 0) -> Request:
    """Return a request of these blocks and two more tokens."""
    return make_request(
        name,
        session,
        hashes=make_hashes(*blocks),
        prompt_tokens=len(blocks) * BLOCK_SIZE + 2,
        block_size=BLOCK_SIZE,
        arrived_at_s=at_s,
    )


STATES = [make_state("r1"), make_state("r2")]


def decide(
    router: Router, turn: Request, states: Sequence[ReplicaState] = STATES, now_s: float = 0
) -> Decision:
    """Decide on a turn that need not wait."""
    made = router.decide(turn, states, now_s, Random(0))
    assert isinstance(made, Decision)
    return made


def test_a_session_by_lineage() -> None:
    """Turns that extend each other are one session, with one home, though none names it."""
    router = make_router()
    first = decide(router, make_turn("q1", 1, 2))
    router.first_byte(RequestId("q1"), 0)
    router.end(RequestId("q1"), 1)
    second = decide(router, make_turn("q2", 1, 2, 3), now_s=5)
    assert (first.rule, second.rule) == (Rule.NEW, Rule.STAYED)
    assert second.replica == first.replica
    assert second.booking.session == SessionId("q1")
    known = router.sessions.get(SessionId("q1"))
    assert known
    assert known.turns == 2


def test_siblings_stay_together() -> None:
    """The blocks of a prompt that was just sent somewhere are expected there at once."""
    router = make_router(placement_slack_s=0)
    prompt = list(range(400))
    first = decide(router, make_turn("q1", *prompt))
    router.first_byte(RequestId("q1"), 0)
    sibling = decide(router, make_turn("q2", *prompt, session="other"))
    assert sibling.replica == first.replica
    assert sibling.booking.uncached_tokens == 2
    router.end(RequestId("q1"), 40)
    router.end(RequestId("q2"), 40)
    router.expire(40, replicas=1)
    later = decide(router, make_turn("q3", *prompt, session="third"), now_s=40)
    assert later.booking.uncached_tokens == 400 * BLOCK_SIZE + 2


def test_new_sessions_spread() -> None:
    """One session after another goes to both replicas in turn, as the first ones still live."""
    router = make_router()
    replicas = []
    for i in range(6):
        replicas.append(decide(router, make_turn(f"q{i}", 10 * i, session=f"s{i}")).replica)
        router.end(RequestId(f"q{i}"), 0)
    assert [replicas.count(R1), replicas.count(R2)] == [3, 3]


def test_a_parked_request_does_not_wait_for_itself() -> None:
    """Asked again once there is room, it costs what it would have cost without waiting."""
    router = make_router()
    turn = make_turn("q1", 1, 2, 3)
    park = router.decide(turn, [make_state("r1", free_blocks=0)], 0, Random(0))
    assert isinstance(park, Park)
    assert router.in_flight.load(R1).uncached_tokens == 14
    assert len(router.sessions) == 0
    made = decide(router, turn, [make_state("r1")], 1)
    assert made.seconds[R1]["queue_depth"] == 0
    router.end(RequestId("q1"), 2)
    assert router.in_flight.load(R1).uncached_tokens == 0


def test_a_parked_request_that_gives_up() -> None:
    """Its end releases what it added, and is no end of a turn of its session."""
    router = make_router()
    decide(router, make_turn("q1", 1, session="s"))
    router.end(RequestId("q1"), 1)
    router.decide(make_turn("q2", 1, session="s"), [make_state("r1", free_blocks=0)], 5, Random(0))
    assert router.in_flight.load(R1).uncached_tokens > 0
    router.end(RequestId("q2"), 9)
    assert router.in_flight.load(R1).uncached_tokens == 0
    known = router.sessions.get(SessionId("s"))
    assert known
    assert (known.turns, known.ended_at_s) == (1, 1)


def test_a_split_session_keeps_its_home() -> None:
    """A burst goes elsewhere from its third request on, and comes home afterwards."""
    router = make_router(max_session_concurrency=2)
    burst = [decide(router, make_turn(f"q{i}", i, session="s")) for i in range(3)]
    assert [d.rule for d in burst] == [Rule.NEW, Rule.STAYED, Rule.SPLIT]
    assert burst[2].replica != burst[0].replica
    for i in range(3):
        router.end(RequestId(f"q{i}"), 1)
    assert decide(router, make_turn("q9", 9, session="s")).replica == burst[0].replica


def test_an_unsynced_replica_is_trusted_by_its_sessions() -> None:
    """While the index knows nothing of a session's home, its earlier turns count as held there."""
    router = make_router()
    prompt = list(range(500))
    home = decide(router, make_turn("q1", *prompt, session="s")).replica
    router.end(RequestId("q1"), 1)
    for replica in (R1, R2):
        assert not router.index.apply(EventBatch(replica, 1, 7, []), 1)
    states = [make_state(r, synced=router.index.is_synced(r)) for r in (R1, R2)]
    decision = decide(router, make_turn("q2", *prompt, 501, session="s"), states, 2)
    assert (decision.replica, decision.booking.uncached_tokens) == (home, BLOCK_SIZE + 2)
    other = R2 if home == R1 else R1
    assert decision.seconds[other]["kv_locality"] > 1
    router.end(RequestId("q2"), 2)
    stranger = decide(router, make_turn("q3", *prompt, session="other"), states, 2)
    assert stranger.seconds[home]["kv_locality"] > 1


def test_a_synced_home_is_what_its_events_say() -> None:
    """What a session left at its home does not count there once the index knows better."""
    router = make_router()
    prompt = list(range(500))
    decide(router, make_turn("q1", *prompt, session="s"))
    router.end(RequestId("q1"), 1)
    router.expire(100, replicas=1)
    again = decide(router, make_turn("q2", *prompt, session="s"), now_s=100)
    assert again.booking.uncached_tokens == 500 * BLOCK_SIZE + 2


def test_events_decide() -> None:
    """A session whose KV is elsewhere, as events say, moves there."""
    router = make_router()
    prompt = list(range(500))
    states = {r: make_state(r) for r in (R1, R2)}
    home = decide(router, make_turn("q1", 0, session="s")).replica
    router.end(RequestId("q1"), 0)
    other = R2 if home == R1 else R1
    stored = make_stored(*prompt, names=prompt)
    router.index.apply(EventBatch(other, 1, 1, [stored]), 1)
    decision = decide(router, make_turn("q2", *prompt, session="s"), list(states.values()), 1)
    assert (decision.replica, decision.rule, decision.home) == (other, Rule.MOVED, other)


def test_ends_that_never_came() -> None:
    """Old requests are released, told of, and end their session's turn."""
    router = make_router(booking_expiry_s=100)
    booking = decide(router, make_turn("q1", 1, session="s")).booking
    assert router.expire(100, replicas=1) == ()
    assert router.expire(101, replicas=1) == (booking,)
    known = router.sessions.get(SessionId("s"))
    assert known
    assert known.ended_at_s == 101


def test_a_replica_is_gone() -> None:
    """Its requests are released and told of, its blocks forgotten, its sessions placed anew."""
    router = make_router()
    made = decide(router, make_turn("q1", 1, 2, session="s"))
    gone = made.replica
    router.index.apply(EventBatch(gone, 1, 1, [make_stored(1, 2, names=[10, 20])]), 0)
    assert router.forget(gone, 5) == (made.booking,)
    assert router.in_flight.load(gone).prefilling == 0
    assert not router.index.match(make_hashes(1, 2))
    left = [state for state in STATES if state.replica != gone]
    assert decide(router, make_turn("q2", 1, 2, session="s"), left, 5).rule is Rule.MOVED


def test_a_new_router_learns_of_sessions_from_their_replicas() -> None:
    """A session stays where it lived, and a prompt that extends it belongs to it."""
    router = make_router()
    first, second = make_turn("q1", 1, 2), make_turn("q2", 1, 2, 3)
    tail = LastTurn(SessionId("s1"), 2, first.hashes[-1], first.blocks, -5.0)
    router.resume([tail], R2, now_s=100.0)
    decision = decide(router, second, now_s=100.0)
    assert (decision.booking.session, decision.replica, decision.rule) == ("s1", R2, Rule.STAYED)


def test_of_two_replicas_the_one_that_saw_a_session_last_is_its_home() -> None:
    """Whichever tells of it first."""
    old = LastTurn(SessionId("s1"), 0, None, 3, -50.0)
    new = LastTurn(SessionId("s1"), 0, None, 3, -5.0)
    for turns in ([(old, R1), (new, R2)], [(new, R2), (old, R1)]):
        router = make_router()
        for turn, replica in turns:
            router.resume([turn], replica, now_s=100.0)
        known = router.sessions.get(SessionId("s1"))
        assert known is not None
        assert (known.replica, known.seen_at_s) == (R2, 95.0)


def test_numbers_that_change_apply_to_what_is_known() -> None:
    """Bookings made before are expired by the new limit, and sessions forgotten by it."""
    router = make_router(booking_expiry_s=1000.0, session_expiry_s=1000.0)
    decide(router, make_turn("q1", 1, session="s1"))
    router.expire(50, replicas=1)
    assert len(router.sessions) == 1
    router.tune(Tunables(booking_expiry_s=10.0, session_expiry_s=10.0))
    assert len(router.expire(50, replicas=1)) == 1
    router.expire(61, replicas=1)
    assert len(router.sessions) == 0


def test_what_a_replica_remembers_is_less_than_what_is_known_of_a_turn_that_runs() -> None:
    """Its home and turns stay, though the replica began it after the router sent it there."""
    router = Router(Tunables())
    states = [make_state("r1")]
    for name in ("q1", "q2"):
        router.decide(make_request(name, "s"), states, 0.0, Random(0))
    before = router.sessions.get(SessionId("s"))
    assert before
    told = [LastTurn(SessionId("s"), 1, make_hashes(9)[0], 2, at_s=-1.0)]
    router.resume(told, ReplicaId("r2"), now_s=2.0)
    assert router.sessions.get(SessionId("s")) == before
    router.end(RequestId("q1"), 3.0)
    router.resume(told, ReplicaId("r2"), now_s=5.0)
    one_runs = router.sessions.get(SessionId("s"))
    assert one_runs
    assert one_runs.replica == before.replica
    router.end(RequestId("q2"), 6.0)
    router.resume(told, ReplicaId("r2"), now_s=8.0)
    none_runs = router.sessions.get(SessionId("s"))
    assert none_runs
    assert none_runs.replica == "r2"

"""While turns are late, sessions that run go on and others wait, and are turned away in the end."""

from random import Random

from policies.router import Router
from policies.tunables import Tunables
from policies.types import Decision, Park, Refusal, Request, RequestId, SessionId
from tests.policies.makers import make_hashes, make_request, make_state

STATES = [make_state("r1", total_blocks=100_000, free_blocks=100_000, max_requests=1000)]
BUSY = [make_state("r1", total_blocks=100_000, free_blocks=0, max_requests=1000)]


def make_turn(name: str, session: str, at_s: float) -> Request:
    """Return a turn of a session that nobody computed before, two tokens long."""
    return make_request(name, session, hashes=[], prompt_tokens=2, arrived_at_s=at_s)


def serve(router: Router, name: str, session: str, at_s: float, ttft_s: float = 0.1) -> None:
    """Let a turn arrive, get its first token so much later, and end."""
    outcome = router.decide(make_turn(name, session, at_s), STATES, at_s, Random(0))
    assert isinstance(outcome, Decision)
    router.first_byte(RequestId(name), at_s + ttft_s)
    router.end(RequestId(name), at_s + ttft_s)


def make_overloaded(sessions: int = 20, **tunables: float) -> Router:
    """Return a router at 20 s of whose sessions each had a late turn: 19 of 20 may run.

    The first one has had no turn for the longest time.
    """
    router = Router(Tunables(**tunables))  # type: ignore[arg-type]  # each as its own type
    for number in range(sessions):
        serve(router, f"first-{number}", f"s{number}", at_s=number / 10, ttft_s=9.0)
    router.expire(20, replicas=1)
    assert router.admission.limit.sessions == sessions * 19 // 20
    return router


def ask(router: Router, name: str, session: str, at_s: float) -> Decision | Park | Refusal:
    """Return what the router says to a turn that arrives now."""
    return router.decide(make_turn(name, session, at_s), STATES, at_s, Random(0))


def let_go(router: Router, now_s: float) -> list[str]:
    """Return who goes, in order, and who is turned away."""
    made = router.place_waiting(STATES, now_s, Random(0))
    return [
        one.booking.request if isinstance(one, Decision) else f"not {one.request}" for one in made
    ]


def leave(router: Router, *sessions: str) -> None:
    """Let sessions be forgotten, as if they had had no turn for long."""
    places = router.admission._places
    for session in sessions:
        del places[SessionId(session)]


def test_sessions_that_run_go_on() -> None:
    """They are not asked to wait, however late turns are."""
    assert isinstance(ask(make_overloaded(), "q", "s7", at_s=21), Decision)


def test_a_new_session_waits_for_a_place() -> None:
    """It says why, and puts nothing on any replica meanwhile."""
    router = make_overloaded()
    park = ask(router, "q", "new", at_s=21)
    assert isinstance(park, Park)
    assert park.held
    assert "19 sessions run" in park.reason
    assert router.in_flight.load(STATES[0].replica).uncached_tokens == 0
    assert let_go(router, 22) == []
    leave(router, "s5")
    assert let_go(router, 23) == ["q"]


def test_new_replicas_let_sessions_in_at_once() -> None:
    """Those that wait need not until the limit has grown by itself."""
    router = make_overloaded()
    held = [f"q{number}" for number in range(30)]
    for name in held:
        assert isinstance(ask(router, name, f"new {name}", at_s=21), Park)
    router.expire(21, replicas=2)
    assert let_go(router, 22) == held[:19]


def test_who_had_no_turn_for_the_longest_time_makes_room() -> None:
    """One place too many was taken: the first session's."""
    router = make_overloaded()
    assert isinstance(ask(router, "q", "s0", at_s=21), Park)
    assert isinstance(ask(router, "r", "s1", at_s=21), Decision)


def test_a_session_with_a_turn_keeps_its_place() -> None:
    """Though it began that turn long ago; one whose turn waits for room does, too."""
    router = Router(Tunables())
    for number in range(20):
        serve(router, f"q{number}", f"s{number}", at_s=0, ttft_s=9.0)
    assert isinstance(ask(router, "long", "s0", at_s=1), Decision)
    assert isinstance(router.decide(make_turn("w", "s1", 1), BUSY, 1, Random(0)), Park)
    router.expire(20, replicas=1)
    assert isinstance(ask(router, "a", "s0", at_s=21), Decision)
    assert isinstance(ask(router, "b", "s2", at_s=21), Park)


def test_who_makes_room_depends_on_no_order_of_a_set() -> None:
    """A simulation gives the same result each time, whatever hashes Python draws."""
    names = [SessionId(f"s{number}") for number in range(20)]
    left = []
    for busy in (names, names[::-1]):
        router = make_overloaded()
        router.admission.expire(busy, (), router.tunables, 25)
        router.admission.limit.sessions = 9
        router.admission.expire((), (), router.tunables, 26)
        left.append([name for name in names if router.admission.admits(name)])
    assert left[0] == left[1] == names[11:]


def test_places_go_to_those_who_asked_first() -> None:
    """One of two that wait gets the place that comes free."""
    router = make_overloaded()
    ask(router, "q2", "new2", at_s=21)
    ask(router, "q1", "new1", at_s=22)
    leave(router, "s5")
    assert let_go(router, 23) == ["q2"]
    leave(router, "s6")
    assert let_go(router, 24) == ["q1"]


def test_it_is_turned_away_when_it_waited_as_long_as_one_may() -> None:
    """And is told why."""
    router = make_overloaded()
    ask(router, "q", "new", at_s=21)
    assert let_go(router, 50) == []
    assert let_go(router, 51) == ["not q"]
    assert len(router.waiting) == 0


def test_nobody_waits_where_none_may() -> None:
    """It is turned away at once."""
    router = make_overloaded(max_park_s=0)
    refusal = ask(router, "q", "new", at_s=21)
    assert isinstance(refusal, Refusal)
    assert "19 sessions run" in refusal.reason


def test_who_comes_back_is_still_the_first() -> None:
    """A client that tries again has not lost its session's turn."""
    router = make_overloaded()
    ask(router, "q1", "new1", at_s=21)
    ask(router, "q2", "new2", at_s=40)
    assert let_go(router, 51) == ["not q1"]
    ask(router, "q1-again", "new1", at_s=53)
    leave(router, "s5")
    assert let_go(router, 54) == ["q1-again"]


def ask_nameless(router: Router, name: str, at_s: float) -> SessionId | None:
    """Return to which session a turn without an id is counted, which is to wait."""
    request = make_request(name, None, hashes=make_hashes(5), prompt_tokens=6, arrived_at_s=at_s)
    park = router.decide(request, STATES, at_s, Random(0))
    assert isinstance(park, Park)
    return park.booking.session


def test_a_prompt_without_an_id_is_still_the_first() -> None:
    """It is known by its prompt when it is sent again."""
    router = make_overloaded()
    first = ask_nameless(router, "q1", 21)
    ask(router, "q2", "new2", at_s=40)
    assert let_go(router, 51) == ["not q1"]
    assert ask_nameless(router, "q1-again", 53) == first
    assert let_go(router, 84) == ["not q1-again", "not q2"]
    assert ask_nameless(router, "q1-once-more", 85) == first
    leave(router, "s5")
    assert let_go(router, 86) == ["q1-once-more"]


def test_equal_prompts_without_an_id_stay_two_sessions() -> None:
    """They may be two agents' first ones, which both come back; a third is another one."""
    router = make_overloaded()
    twins = {ask_nameless(router, "q1", 21), ask_nameless(router, "q2", 22)}
    assert len(twins) == 2
    assert let_go(router, 52) == ["not q1", "not q2"]
    again = {ask_nameless(router, name, 53) for name in ("q3", "q4", "q5")}
    assert again == twins | {"q5"}


def test_who_waits_for_longer_than_others_come_back_is_still_the_first() -> None:
    """It is not forgotten meanwhile."""
    router = make_overloaded(max_park_s=300)
    ask(router, "q1", "new1", at_s=21)
    ask(router, "q2", "new2", at_s=100)
    for now_s in range(22, 322):
        router.expire(now_s, replicas=1)
        router.admission.limit.sessions = len(router.admission)
    assert let_go(router, 322) == ["not q1"]
    ask(router, "q1-again", "new1", at_s=323)
    router.admission.limit.sessions = len(router.admission) + 1
    assert let_go(router, 324) == ["q1-again"]


def test_who_never_comes_back_is_forgotten() -> None:
    """It comes as a new one after minutes."""
    router = make_overloaded()
    ask(router, "q1", "new1", at_s=21)
    assert let_go(router, 51) == ["not q1"]
    router.expire(172, replicas=1)
    ask(router, "q2", "new2", at_s=173)
    ask(router, "q1", "new1", at_s=174)
    leave(router, "s5")
    assert let_go(router, 175) == ["q2"]


def test_a_place_is_kept_between_turns_for_a_while() -> None:
    """A session that paused for longer counts no more."""
    router = Router(Tunables(session_hold_s=60))
    serve(router, "q1", "s1", at_s=0)
    serve(router, "q2", "s2", at_s=30)
    router.expire(60, replicas=1)
    assert len(router.admission) == 2
    router.expire(61, replicas=1)
    assert len(router.admission) == 1


def test_a_slow_machine_is_not_an_overloaded_one() -> None:
    """A prompt that nobody computed before takes its time: 20,000 tokens at 1,000 a second."""
    router = Router(Tunables())
    for number in range(20):
        name = f"q{number}"
        request = make_request(
            name, f"s{number}", hashes=make_hashes(number), prompt_tokens=20_000, block_size=4
        )
        router.decide(request, STATES, 0, Random(0))
        router.first_byte(RequestId(name), 21)
    router.expire(22, replicas=1)
    assert router.admission.limit.sessions is None


def test_waiting_for_a_place_is_not_held_against_those_who_run() -> None:
    """The limit looks at turns from when their session has a place."""
    router = make_overloaded()
    ask(router, "q", "new", at_s=21)
    leave(router, "s5")
    assert let_go(router, 45) == ["q"]
    router.first_byte(RequestId("q"), 45.1)
    for number in range(6, 21):
        serve(router, f"second-{number}", f"s{number % 19 + 1}", at_s=46)
    assert router.admission.limit.late_ratio(47) == 0


def test_all_may_run_where_any_share_may_be_late() -> None:
    """A share of 1 lets nobody wait for a place."""
    router = Router(Tunables(max_late_ratio=1))
    for number in range(20):
        serve(router, f"q{number}", f"s{number}", at_s=0, ttft_s=99)
    router.expire(100, replicas=1)
    assert router.admission.limit.sessions is None


def test_clients_that_do_not_wait_for_a_first_token_are_late_too() -> None:
    """Else a fleet that answers nobody would take in ever more sessions."""
    router = Router(Tunables())
    for number in range(40):
        ask(router, f"q{number}", f"s{number}", at_s=number / 10)
    for number in range(40):
        router.end_at_replica(RequestId(f"q{number}"), 10)
    router.expire(20, replicas=1)
    assert router.admission.limit.sessions == 38


def test_a_first_token_that_is_told_twice_counts_once() -> None:
    """A report is sent again when its answer comes too late."""
    router = Router(Tunables())
    for number in range(40):
        ask(router, f"q{number}", f"s{number}", number / 10)
        router.first_byte(RequestId(f"q{number}"), number / 10 + 0.1)
    for number in range(40):
        router.first_byte(RequestId(f"q{number}"), 12)
    assert router.admission.limit.late_ratio(12) == 0


def test_what_was_late_by_another_measure_says_nothing() -> None:
    """An operator who asks for less is not held to what was too late before."""
    router = Router(Tunables(max_late_ratio=1))
    for number in range(40):
        serve(router, f"q{number}", f"s{number}", at_s=number / 10, ttft_s=9.0)
    router.tune(Tunables(ttft_slo_s=20))
    router.expire(20, replicas=1)
    assert router.admission.limit.sessions is None

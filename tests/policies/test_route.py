"""The session rules, waiting, ties, and the reasons given."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.candidate import Candidate
from policies.in_flight import Load
from policies.residency import Residents
from policies.route import route
from policies.scorers import SCORERS
from policies.tunables import Tunables
from policies.types import Decision, Park, ReplicaId, Rule, Tier
from tests.policies.makers import make_candidate, make_request

R1, R2, R3 = ReplicaId("r1"), ReplicaId("r2"), ReplicaId("r3")


def decide(
    *candidates: Candidate,
    home: ReplicaId | None = None,
    usual_tokens: float | None = None,
    now_s: float = 0,
    seed: int = 0,
    **tunables: float,
) -> Decision:
    """Route to one of the candidates."""
    made = route(candidates, home, usual_tokens, _tunables(tunables), now_s, Random(seed))
    assert isinstance(made, Decision)
    return made


def wait(*candidates: Candidate, now_s: float = 0, **tunables: float) -> Park:
    """Route a request that has to wait."""
    made = route(candidates, None, None, _tunables(tunables), now_s, Random(0))
    assert isinstance(made, Park)
    return made


def _tunables(changes: dict[str, float]) -> Tunables:
    fixed = {"stickiness_s": 0.5, "placement_slack_s": 0.2, "interference_ratio": 0.1}
    fields: dict[str, float] = fixed | changes
    return Tunables(**fields)  # type: ignore[arg-type]  # each as its own type


def busy(tokens: int) -> Load:
    """Return the load of a prefill that takes tokens / 1,000 seconds."""
    return Load(uncached_tokens=tokens, prefilling=1)


@pytest.mark.parametrize(
    ("extra_tokens", "replica", "rule"),
    [(0, R1, Rule.STAYED), (490, R1, Rule.STAYED), (510, R2, Rule.MOVED)],
)
def test_rule_1_stickiness(extra_tokens: int, replica: ReplicaId, rule: Rule) -> None:
    """A session moves only if its home costs more than the best by over the margin."""
    home = make_candidate("r1", gpu=100, load=busy(400 + extra_tokens))
    other = make_candidate("r2", gpu=60)
    decision = decide(home, other, home=R1)
    assert (decision.replica, decision.rule, decision.home) == (replica, rule, replica)


@pytest.mark.parametrize(
    "gone",
    [
        [make_candidate("r1", gpu=100, draining=True)],
        [make_candidate("r1", gpu=100, running=16)],
        [],
    ],
    ids=["draining", "full", "gone"],
)
def test_a_home_that_takes_no_more(gone: list[Candidate]) -> None:
    """A session whose home is draining, full or gone gets another."""
    decision = decide(*gone, make_candidate("r2"), home=R1)
    assert (decision.replicas, decision.rule, decision.home) == ((R2,), Rule.MOVED, R2)
    assert "r1 is full, draining or gone" in decision.reason


def test_rule_2_a_burst_is_split() -> None:
    """From the limit on a session's next request goes to a better other; its home stays."""
    home = make_candidate("r1", gpu=100, load=busy(700), session_requests=2)
    others = make_candidate("r2", gpu=50), make_candidate("r3")
    stays = decide(home, *others, home=R1, max_session_concurrency=3)
    assert (stays.replica, stays.rule) == (R1, Rule.STAYED)
    split = decide(home, *others, home=R1, max_session_concurrency=2)
    assert (split.replica, split.rule, split.home) == (R2, Rule.SPLIT, R1)
    assert "2 requests of its session" in split.reason


def test_rule_2_must_pay() -> None:
    """A burst stays together while computing its prompt elsewhere costs more than waiting."""
    home = make_candidate("r1", gpu=100, load=busy(490), session_requests=4)
    stays = decide(home, make_candidate("r2", gpu=50), home=R1)
    assert (stays.replica, stays.rule) == (R1, Rule.STAYED)


def test_rule_2_prefers_holders() -> None:
    """Of those that cost about the same, the split goes to the one that holds most."""
    home = make_candidate("r1", gpu=100, load=busy(1500), session_requests=4)
    idle, holder = make_candidate("r2", gpu=40), make_candidate("r3", gpu=80, load=busy(800))
    assert decide(home, idle, holder, home=R1).replica == R3
    far = make_candidate("r3", gpu=80, load=busy(2000))
    assert decide(home, idle, far, home=R1).replica == R2


def test_rule_2_needs_another_with_room() -> None:
    """A burst stays together where no other has room, or all have their share of it."""
    home = make_candidate("r1", gpu=100, load=busy(1300), session_requests=4)
    for other in (
        make_candidate("r2", gpu=100, free_blocks=10),
        make_candidate("r2", session_requests=4),
    ):
        assert decide(home, other, home=R1).rule is Rule.STAYED


@pytest.mark.parametrize(
    ("occupied", "free"),
    [
        (make_candidate("r1", running=1), make_candidate("r2")),
        (make_candidate("r1", residents=Residents(3, 0)), make_candidate("r2", running=2)),
        (make_candidate("r1", free_blocks=500), make_candidate("r2", free_blocks=600)),
        (make_candidate("r1", load=Load(decoding=1)), make_candidate("r2")),
        (make_candidate("r1", gpu=10, residents=Residents(1, 0)), make_candidate("r2")),
    ],
    ids=["running", "resident", "KV use", "in flight", "a small prefix holds nobody"],
)
def test_rule_3_new_sessions(occupied: Candidate, free: Candidate) -> None:
    """A new session goes where least runs, lives and is used, if that costs about the same."""
    for candidates in ((occupied, free), (free, occupied)):
        decision = decide(*candidates)
        assert (decision.replica, decision.rule, decision.home) == (R2, Rule.NEW, R2)


def test_rule_3_a_large_prefix_counts() -> None:
    """A new session goes to the holder of its prefix where another would cost much more."""
    holder = make_candidate("r1", gpu=30, residents=Residents(5, 0))
    assert decide(holder, make_candidate("r2")).replica == R1


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 3000)), min_size=2, max_size=6),
    st.integers(0, 5),
)
def test_rule_4_more_replicas_move_nobody(held: list[tuple[int, int]], position: int) -> None:
    """A session that stays among some replicas stays when an empty one joins, if rule 1 says so."""
    candidates = [
        make_candidate(f"r{i}", gpu=gpu, load=busy(tokens)) for i, (gpu, tokens) in enumerate(held)
    ]
    home = candidates[position % len(candidates)]
    before = decide(*candidates, home=home.replica)
    new = make_candidate("new")
    after = decide(*candidates, new, home=home.replica)
    cost_s = sum(after.seconds[home.replica].values())
    new_s = sum(after.seconds[ReplicaId("new")].values())
    if before.rule is Rule.STAYED and cost_s <= new_s + 0.5:
        assert after.replica == home.replica
    if before.rule is Rule.STAYED and cost_s > new_s + 0.5:
        assert (after.replica, after.rule) == ("new", Rule.MOVED)


def cold_candidates(*prefills: int) -> list[Candidate]:
    """Return replicas with cold prefills, for a prompt that takes 10 s to prefill cold."""
    request = make_request(prompt_tokens=10_000, block_size=100)
    return [
        make_candidate(f"r{i}", request=request, load=Load(cold_prefills=count, decoding=i))
        for i, count in enumerate(prefills, 1)
    ]


@pytest.mark.parametrize(
    ("prefills", "usual_tokens", "replica", "cold"),
    [
        ((1, 0), 100, R2, True),
        ((0, 0), 100, R1, True),
        ((1, 1), 100, R1, True),
        ((1, 0), 1000, R1, False),
        ((1, 0), None, R1, False),
    ],
)
def test_rule_5_cold_prefills_are_isolated(
    prefills: tuple[int, ...], usual_tokens: float | None, replica: ReplicaId, cold: bool
) -> None:
    """A prefill far longer than usual avoids replicas that have theirs, where it can."""
    decision = decide(*cold_candidates(*prefills), usual_tokens=usual_tokens)
    assert (decision.replica, decision.booking.cold) == (replica, cold)


def test_rule_5_short_prefills_and_cached_ones_are_not_cold() -> None:
    """A prefill that is over in no time is not cold, nor is one on the holder of its prefix."""
    short = decide(*cold_candidates(1, 0), usual_tokens=1, cold_prefill_least_s=11)
    assert (short.replica, short.booking.cold) == (R1, False)
    holder, other = cold_candidates(0, 0)
    warm = make_candidate("r1", request=holder.request, gpu=90, load=Load(cold_prefills=1))
    decision = decide(warm, other, usual_tokens=100)
    assert (decision.replica, decision.booking.cold) == (R1, False)


def test_rule_5_needs_room_elsewhere() -> None:
    """A cold prefill joins another one rather than a replica that has no room."""
    first, second = cold_candidates(1, 0)
    full = make_candidate("r2", request=second.request, free_blocks=10)
    assert decide(first, full, usual_tokens=100).replica == R1


def test_waiting_for_memory() -> None:
    """A request waits while its choice has no room, its prefill being booked there meanwhile."""
    candidates = make_candidate("r1", free_blocks=90), make_candidate("r2", free_blocks=95)
    park = wait(*candidates, now_s=29.9)
    assert park.until_s == 30
    assert park.booking.replica == R2
    assert park.booking.parked
    assert "r2" in park.reason
    assert "lacks 5 of 100 blocks" in park.reason
    assert set(park.seconds) == {R1, R2}
    late = decide(*candidates, now_s=30)
    assert late.replica == R2
    assert "it found no room in 30 s" in late.reason
    assert not late.booking.parked


def test_waiting_for_the_cache() -> None:
    """A request waits for the replica that has its KV, unless another one is better by then."""
    warm, cold = make_candidate("r1", gpu=100, free_blocks=95), make_candidate("r2")
    park = wait(warm, cold)
    assert (park.booking.replica, park.booking.uncached_tokens) == (R1, 1)
    assert decide(warm, cold, now_s=30).replica == R1
    overdue = make_candidate("r1", gpu=100, free_blocks=95, hold_s=1000)
    assert decide(overdue, cold).replica == R2


def test_waiting_for_a_place() -> None:
    """A request waits where all replicas are full, and goes to one that stays in the end."""
    full, leaving = make_candidate("r1", running=16), make_candidate("r2", draining=True)
    assert wait(full, leaving).booking.replica == R1
    assert decide(full, leaving, now_s=30).replica == R1
    assert decide(leaving, now_s=30).replica == R2


def test_who_waits_first() -> None:
    """Those whose KV is at hand go first, then the oldest."""
    old, new = make_request(arrived_at_s=1), make_request(arrived_at_s=2)
    warm_old = wait(make_candidate(free_blocks=0, gpu=50, request=old))
    warm_new = wait(make_candidate(free_blocks=0, cpu=60, request=new))
    cold_old = wait(make_candidate(free_blocks=0, gpu=49, request=old))
    cold_new = wait(make_candidate(free_blocks=0, request=new))
    parks = [cold_new, warm_new, cold_old, warm_old]
    assert sorted(parks, key=lambda p: p.order) == [warm_old, warm_new, cold_old, cold_new]


def test_ties() -> None:
    """Equal costs go to the replica with fewest resident sessions, then to any of them."""
    home = make_candidate("r3", load=busy(5000))
    crowded = make_candidate("r1", residents=Residents(2, 0))
    quiet = make_candidate("r2", residents=Residents(1, 0))
    for seed in range(20):
        assert decide(crowded, quiet, home, home=R3, seed=seed).replicas == (R2, R1, R3)
    same = make_candidate("r1"), make_candidate("r2"), home
    chosen = Counter(decide(*same, home=R3, seed=seed).replica for seed in range(100))
    assert min(chosen[R1], chosen[R2]) > 30
    assert len({decide(*same, home=R3, seed=7).replica for _ in range(10)}) == 1


def test_weights() -> None:
    """A scorer's weight multiplies its seconds."""
    holder, idle = make_candidate("r1", gpu=100, load=busy(700)), make_candidate("r2")
    weights = dict.fromkeys(SCORERS, 1.0)
    near = Tunables(weights=weights, stickiness_s=0)
    far = Tunables(weights=weights | {"queue_depth": 3.0}, stickiness_s=0)
    decisions = [route([holder, idle], R1, None, t, 0, Random(0)) for t in (near, far)]
    assert [d.booking.replica for d in decisions] == [R1, R2]
    assert decisions[1].seconds[R1]["queue_depth"] == pytest.approx(3 * 0.7)


def test_what_a_decision_expects_of_the_first_token() -> None:
    """The wait and the prefill; neither weights nor what it costs others changes it."""
    load = Load(uncached_tokens=700, decoding=5)
    weights = dict.fromkeys(SCORERS, 3.0)
    home = make_candidate("r1", gpu=50, cpu=20, load=load)
    made = route([home], R1, None, Tunables(weights=weights, decode_share_ratio=0), 0, Random(0))
    assert isinstance(made, Decision)
    assert made.ttft_s == pytest.approx(0.7 + 0.02 + 0.3)


def test_a_decision_explains_itself() -> None:
    """It has the seconds of every candidate, the tokens by tier and the booking."""
    chosen = make_candidate("r1", gpu=50, cpu=20)
    decision = decide(make_candidate("r2", load=busy(900)), chosen, make_candidate("r3"), home=R1)
    assert decision.replicas == (R1, R3, R2)
    assert set(decision.seconds[R2]) == {"kv_locality", "queue_depth", "kv_pressure"}
    assert decision.seconds[R2]["queue_depth"] == pytest.approx(0.9)
    assert decision.cached_tokens == {Tier.GPU: 500, Tier.CPU: 200, Tier.SHARED: 0}
    assert decision.booking.uncached_tokens == 300
    assert decision.booking.blocks == 100
    assert decision.reason == "stays at r1 (0.32 s), which is the best"
    sticky = decide(make_candidate("r1", gpu=70), make_candidate("r2", gpu=100), home=R1)
    assert sticky.reason == "stays at r1 (0.30 s): r2 (0.00 s) isn't better by 0.5 s"


def test_no_replicas() -> None:
    """There is no decision without candidates."""
    with pytest.raises(ValueError, match="no replicas"):
        decide()

"""The router actor's answers to gateways and replicas, without Ray around it."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from policies.autoscale import Wish
from policies.autoscale_settings import AutoscaleSettings
from policies.kv_events import EngineHash, Event, EventBatch, Removed, Snapshot
from policies.observer import SIZES
from policies.prefix_break import Kind, PrefixBreak
from policies.sessions import LastTurn
from policies.tunables import Tunables
from policies.types import Refusal, ReplicaId, RequestId, Rule, SessionId, Tier
from serve_app import decision_log, explain, router_actor, session_list
from serve_app.metric import Metric, Owner
from serve_app.metrics import (
    DEMANDED_REPLICAS,
    HIT_TOKENS,
    METRICS,
    MISSED_TOKENS,
    PROMPT_TOKENS,
    REUSE_RATIO,
    SESSION_LIMIT,
    WISHED_REPLICAS,
)
from serve_app.replica_report import Outcome, TurnEnd
from serve_app.route_request import Placement, RouteRequest
from serve_app.router_actor import RouterActor
from serve_app.scaling import ScaleQuestion
from tests.makers import GATEWAY, make_report, make_turn
from tests.policies.makers import BLOCK_SIZE, make_hashes, make_state, make_stored

R1, R2 = ReplicaId("r1"), ReplicaId("r2")
PLACES = {R1: 64, R2: 64}


FULL = make_state("r1", total_blocks=10, free_blocks=0)
ROOMY = make_state("r1", total_blocks=10, free_blocks=10)


async def test_a_turn_follows_its_kv(actor: RouterActor) -> None:
    """The replica that says that it holds the prompt gets it."""
    await actor.report(make_report("r1"))
    stored = make_stored(1, 2, names=[11, 12])
    held = EventBatch(R2, 1, 0, [stored])
    await actor.report(make_report("r2", batch=held))
    placement = await actor.decide(make_turn("q1", 1, 2), PLACES)
    assert isinstance(placement, Placement)
    assert (placement.replica, placement.expected_cached_tokens) == (R2, 2 * BLOCK_SIZE)
    assert placement.why
    assert (placement.why.rule, placement.why.waited_s) == (Rule.NEW, 0)


async def test_a_replica_out_of_step_is_asked_for_a_snapshot(actor: RouterActor) -> None:
    """After a gap, and in a new router, nothing is known until the snapshot comes."""
    stored = make_stored(1, names=[11])
    assert not await actor.report(make_report("r1", batch=EventBatch(R1, 1, 5, [stored])))
    assert (await actor.configure(Tunables(), None, GATEWAY)).synced_replicas == 0
    snapshot = Snapshot(R1, 1, 5, [stored])
    assert await actor.report(make_report("r1", batch=None, snapshot=snapshot))
    assert (await actor.configure(Tunables(), None, GATEWAY)).synced_replicas == 1


async def test_a_lost_replica_gets_nothing_more(actor: RouterActor) -> None:
    """Its blocks and bookings are gone at once, although a gateway still names it."""
    await actor.report(make_report("r1"))
    held = EventBatch(R2, 1, 0, [make_stored(1, 2, names=[11, 12])])
    await actor.report(make_report("r2", batch=held))
    await actor.lose(R2)
    placement = await actor.decide(make_turn("q1", 1, 2), PLACES)
    assert isinstance(placement, Placement)
    assert (placement.replica, placement.expected_cached_tokens) == (R1, 0)


async def test_while_nobody_reported_all_are_candidates(actor: RouterActor) -> None:
    """A router that just started places turns all the same."""
    placement = await actor.decide(make_turn("q1", 1), PLACES)
    assert isinstance(placement, Placement)
    assert placement.replica in PLACES


async def test_a_waiting_turn_goes_once_there_is_room(actor: RouterActor) -> None:
    """The gateway's question is answered as soon as the replica reports it."""
    await actor.report(make_report("r1", state=FULL))
    turn = make_turn("q1", 1, 2)
    assert await actor.decide(turn, {R1: 64}) is None
    question = asyncio.create_task(actor.wait(turn, {R1: 64}))
    await asyncio.sleep(0)
    await actor.report(make_report("r1", state=ROOMY))
    placement = await question
    assert isinstance(placement, Placement)
    assert placement.replica == R1
    assert placement.why
    assert placement.why.waited_s


async def test_a_new_router_takes_over_those_that_wait(actor: RouterActor) -> None:
    """It has never heard of them, and decides."""
    await actor.report(make_report("r1"))
    placement = await actor.wait(make_turn("q1", 1, 2), {R1: 64})
    assert isinstance(placement, Placement)
    assert placement.replica == R1


async def test_who_rejected_one_turn_is_there_for_others(actor: RouterActor) -> None:
    """A turn that waits goes to a replica that another turn was refused by before."""
    await actor.report(make_report("r1", state=FULL))
    await actor.report(make_report("r2", state=make_state("r2", total_blocks=10, free_blocks=0)))
    waiting, refused = make_turn("q1", 1, 2), make_turn("q2", 1, 2)
    assert await actor.decide(waiting, PLACES) is None
    refused.rejected_by = {R1}
    assert await actor.decide(refused, PLACES) is None
    await actor.give_up(refused.request)
    await actor.report(make_report("r1", state=ROOMY))
    async with asyncio.timeout(1):
        placement = await actor.wait(waiting, PLACES)
    assert isinstance(placement, Placement)
    assert placement.replica == R1


async def test_a_turn_that_replicas_refuse_is_one_turn(actor: RouterActor) -> None:
    """What is expected of it counts where it came to run; its new session did not move there."""
    await actor.report(make_report("r1"))
    await actor.report(make_report("r2"))
    turn = make_turn("q1", 1, 2, session="s1")
    for _ in range(3):
        placement = await actor.decide(turn, PLACES)
        assert isinstance(placement, Placement)
        chosen = placement.replica
        turn.rejected_by = {chosen}
    end = TurnEnd(turn.request, 10, 0, 5, 0.25)
    await actor.report(make_report(chosen, ends=(end,)))
    now = await sampled(actor)
    assert (now["warmturn_decisions", "new"], now["warmturn_decisions", "moved"]) == (3, 0)
    expected = sum(now["warmturn_expected_cached_tokens", tier] for tier in ("gpu", "cpu"))
    told = await actor.decision("q1")
    assert told
    assert expected == sum(told["expected_cached_tokens"].values())
    again = await actor.decide(make_turn("q2", 1, 2, 3, session="s1"), PLACES)
    assert isinstance(again, Placement)
    assert again.why
    assert again.why.rule is Rule.STAYED


async def test_a_turn_that_waits_since_it_was_refused_is_one_turn(actor: RouterActor) -> None:
    """Its replica turned out to be full: its session is as new as before, and has no more turns."""
    await actor.report(make_report("r1", state=ROOMY))
    turn = make_turn("q1", 1, 2, session="s1")
    assert isinstance(await actor.decide(turn, PLACES), Placement)
    turn.rejected_by = {R1}
    await actor.report(make_report("r1", state=FULL))
    assert await actor.decide(turn, PLACES) is None
    await actor.report(make_report("r1", state=ROOMY))
    async with asyncio.timeout(1):
        placement = await actor.wait(turn, PLACES)
    assert isinstance(placement, Placement)
    assert placement.why
    assert placement.why.rule is Rule.NEW
    [told] = json.loads(await actor.sessions(10))["sessions"]
    assert told["turns"] == 1


def test_the_last_turns_are_remembered_whatever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait are remembered besides them, not in their place."""
    monkeypatch.setattr(decision_log, "MAX_TURNS", 2)
    log = decision_log.DecisionLog()
    turns = [
        make_turn(name, 1) for name in ("old", "waits-1", "waits-2", "waits-3", "new", "newest")
    ]
    for turn in turns:
        log.arrived(turn, 0.0)
    log.expire({RequestId(f"waits-{number}") for number in (1, 2, 3)})
    names = [turn.request for turn in log.newest(9)]
    assert names == ["newest", "new", "waits-3", "waits-2", "waits-1"]


async def test_a_turn_that_waits_is_remembered(
    actor: RouterActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came and went meanwhile are forgotten before."""
    monkeypatch.setattr(decision_log, "MAX_TURNS", 2)
    monkeypatch.setattr(router_actor, "TICK_S", 0.01)
    await actor.report(make_report("r1", state=FULL))
    waiting = make_turn("q1", 1, 2)
    assert await actor.decide(waiting, {R1: 64}) is None
    for number in range(5):
        other = make_turn(f"other-{number}", 1)
        await actor.decide(other, {R1: 64})
        await actor.give_up(other.request)
    await asyncio.sleep(0.1)
    assert await actor.decision("other-0") is None
    await actor.report(make_report("r1", state=ROOMY))
    told = await actor.decision("q1")
    assert told
    assert told["waited_s"] > 0
    now = await sampled(actor)
    assert now["warmturn_waited_turns",] == 1


async def test_a_turn_that_was_never_sent_is_released(
    actor: RouterActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its gateway died with it; one that the replica has is kept."""
    monkeypatch.setattr(router_actor, "UNSENT_S", 0.0)
    monkeypatch.setattr(router_actor, "TICK_S", 0.01)
    await actor.report(make_report("r1"))
    for name in ("sent", "unsent"):
        await actor.decide(make_turn(name, 1, 2), {R1: 64})
    await actor.report(make_report("r1", turns=frozenset({RequestId("sent")})))
    await asyncio.sleep(0.1)
    [replica] = await actor.replicas()
    assert (replica["booked_uncached_tokens"], replica["requests"]) == (10, 1)


async def test_a_waiting_turn_that_is_given_up_frees_its_place(actor: RouterActor) -> None:
    """Its client left, or its gateway placed it without the router."""
    await actor.report(make_report("r1", state=FULL))
    turn = make_turn("q1", 1, 2)
    assert await actor.decide(turn, {R1: 64}) is None
    await actor.give_up(turn.request)
    assert (await actor.configure(Tunables(), None, GATEWAY)).waiting == 0
    [replica] = await actor.replicas()
    assert replica["booked_uncached_tokens"] == 0


async def test_load_is_released_as_the_replica_reports(actor: RouterActor) -> None:
    """The prefill with the first token, all else at the end."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, 2)
    await actor.decide(turn, {R1: 64})

    async def booked() -> Sequence[int]:
        [replica] = await actor.replicas()
        return replica["booked_uncached_tokens"], replica["pinned_blocks"]

    assert await booked() == (10, 3)
    await actor.report(make_report("r1", first_tokens=(turn.request,)))
    assert await booked() == (0, 3)
    end = TurnEnd(turn.request, 10, 0, 5, 0.25)
    await actor.report(make_report("r1", ends=(end,)))
    assert await booked() == (0, 0)


async def test_a_decision_can_be_explained(actor: RouterActor) -> None:
    """What was weighed, why, and what came of it; by the id that the client saw."""
    await actor.report(make_report("r1"))
    await actor.report(make_report("r2"))
    turn = make_turn("q1", 1, 2, session="s1")
    placement = await actor.decide(turn, PLACES)
    assert isinstance(placement, Placement)
    end = TurnEnd(turn.request, 10, 4, 5, 0.25)
    await actor.report(make_report(placement.replica, ends=(end,)))
    told = await actor.decision("http-q1")
    assert told is not None
    assert told["session"] == "s1"
    assert told["replica"] == placement.replica
    assert told["rule"] == "new"
    assert set(told["seconds"]) == {"r1", "r2"}
    assert set(told["seconds"]["r1"]) == {"kv_locality", "queue_depth", "kv_pressure"}
    assert told["cost_s"] == pytest.approx(sum(told["seconds"][told["replica"]].values()))
    assert told["weights"] == {"kv_locality": 1.0, "queue_depth": 1.0, "kv_pressure": 1.0}
    assert told["outcome"].pop("tokens")["first_seen_tokens"] == 6
    assert told["outcome"] == {
        "replica": placement.replica,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": 5,
        "ttft_s": 0.25,
    }
    assert await actor.decision("another") is None


async def test_tunables_change_what_is_decided_next(actor: RouterActor) -> None:
    """A session leaves a slow home as soon as stickiness no longer keeps it there."""
    slow = make_state("r1", prefill_tokens_per_s=1.0)
    await actor.report(make_report("r1", state=slow))
    await actor.decide(make_turn("q1", session="s1"), {R1: 64})
    await actor.report(make_report("r2"))
    await actor.configure(Tunables(stickiness_s=60.0), None, GATEWAY)
    stayed = await actor.decide(make_turn("q2", 1, session="s1"), PLACES)
    await actor.configure(Tunables(stickiness_s=0.5), None, GATEWAY)
    moved = await actor.decide(make_turn("q3", 1, session="s1"), PLACES)
    assert isinstance(stayed, Placement)
    assert isinstance(moved, Placement)
    assert (stayed.replica, moved.replica) == (R1, R2)


async def sampled(actor: RouterActor) -> dict[tuple[str, ...], float]:
    """Return the router's metrics: name and values of labels -> value."""
    return {(one.metric, *one.labels): one.value for one in await actor.samples()}


async def test_the_router_has_every_metric_that_is_declared_for_it(actor: RouterActor) -> None:
    """Also before anything happened, but for what there is not yet: replicas, wishes, a limit."""
    declared = {one.name for one in METRICS.values() if one.owner is Owner.ROUTER}
    of_replicas = {name for name in declared if "replica" in METRICS[name].labels}
    of_wishes = {WISHED_REPLICAS.name, DEMANDED_REPLICAS.name}
    later = of_replicas | of_wishes | {SESSION_LIMIT.name, REUSE_RATIO.name}
    assert {name for name, *_ in await sampled(actor)} == declared - later
    await overload(actor)
    await actor.scale(ScaleQuestion(frozenset({R1}), 1, 0, AutoscaleSettings()))
    assert {name for name, *_ in await sampled(actor)} == declared


async def test_what_the_router_counts_of_a_turn(actor: RouterActor) -> None:
    """The decision, what it expected, and what came of it."""
    stored = make_stored(1, 2, names=[11, 12])
    await actor.report(make_report("r1", batch=EventBatch(R1, 1, 0, [stored])))
    turn = make_turn("q1", 1, 2, 3, session="s1")
    await actor.decide(turn, {R1: 64})
    end = TurnEnd(turn.request, 14, 4, 5, 0.25)
    evicted = EventBatch(R1, 1, 1, [Removed(Tier.GPU, [EngineHash(11)])])
    await actor.report(make_report("r1", ends=(end,), batch=evicted))
    now = await sampled(actor)
    assert now["warmturn_decisions", "new"] == 1
    assert now["warmturn_decisions", "moved"] == 0
    assert now["warmturn_expected_cached_tokens", "gpu"] == 2 * BLOCK_SIZE
    assert (now["warmturn_prompt_tokens",], now["warmturn_cached_tokens",]) == (14, 4)
    assert now["warmturn_compared_turns",] == 1
    assert now["warmturn_expected_ttft_seconds",] == pytest.approx(6 / 1000)
    assert now["warmturn_actual_ttft_seconds",] == 0.25
    assert now["warmturn_stored_blocks", "gpu"] == 2
    assert now["warmturn_removed_blocks", "gpu"] == 1
    assert now["warmturn_sessions",] == 1


async def test_what_other_sizes_of_memory_would_give(actor: RouterActor) -> None:
    """Two prompts of 8 blocks in turn: 8 blocks of memory hold none until it comes again, 16 do."""
    await actor.report(make_report("r1", state=make_state("r1", total_blocks=8)))
    prompts = [range(1, 9), range(11, 19)]
    for number in range(20):
        turn = make_turn(f"q{number}", *prompts[number % 2], session=f"s{number % 2}")
        await actor.decide(turn, {R1: 64})
        await actor.give_up(turn.request)
    now = await sampled(actor)
    ratios = {size: now["warmturn_reuse_ratio", size] for size in SIZES}
    assert ratios["0.5"] == 0
    assert ratios["1"] < 0.2
    assert ratios["4"] == ratios["unlimited"] == pytest.approx(0.9 * 32 / 34, abs=0.01)


async def test_what_became_of_a_prompts_tokens(actor: RouterActor) -> None:
    """Cached in a tier, cached elsewhere, evicted, or first seen; the decision says it, too."""
    await actor.report(make_report("r1"))
    held = EventBatch(R2, 1, 0, [make_stored(1, 2, 3, 4, names=[11, 12, 13, 14])])
    await actor.report(make_report("r2", batch=held, state=make_state("r2", free_blocks=0)))
    gone = EventBatch(R2, 1, 1, [Removed(Tier.GPU, [EngineHash(13), EngineHash(14)])])
    await actor.report(make_report("r2", batch=gone, state=make_state("r2", free_blocks=0)))
    turn = make_turn("q1", 1, 2, 3, 4, 5, session="s1")
    placement = await actor.decide(turn, {R1: 64, R2: 64})
    assert isinstance(placement, Placement)
    assert placement.replica == R1
    end = TurnEnd(turn.request, turn.prompt_tokens, 4, 5, 0.25)
    await actor.report(make_report("r1", batch=None, ends=(end,)))
    now = await sampled(actor)
    assert now["warmturn_hit_tokens", "gpu"] == 4
    assert now["warmturn_missed_tokens", "elsewhere"] == 4
    assert now["warmturn_missed_tokens", "evicted"] == 8
    assert now["warmturn_missed_tokens", "first_seen"] == 6
    told = await actor.decision("http-q1")
    assert told is not None
    assert told["outcome"]["tokens"]["evicted_tokens"] == 8


async def test_prompts_that_the_engine_counts_otherwise_are_not_judged(actor: RouterActor) -> None:
    """Such as those that it computed for several answers."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, session="s1")
    await actor.decide(turn, {R1: 64})
    end = TurnEnd(turn.request, 2 * turn.prompt_tokens, 0, 5, 0.25)
    await actor.report(make_report("r1", ends=(end,)))
    assert (await sampled(actor))["warmturn_missed_tokens", "first_seen"] == 0


async def test_who_should_go_takes_no_more_turns(
    actor: RouterActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an idle fleet one drains, then there should be fewer; if another goes, that surprises."""
    question = ScaleQuestion(frozenset({R1, R2}), 2, 0, AutoscaleSettings(calm_s=10, settle_s=0))
    await actor.report(make_report("r1", state=make_state("r1", generation=2)))
    await actor.report(make_report("r2", state=make_state("r2", running=1)))
    begin_s = time.monotonic()
    wished = []
    for seconds in (0.0, 5.0, 10.0, 10.5):
        clock = SimpleNamespace(monotonic=lambda at_s=begin_s + seconds: at_s, time=time.time)
        monkeypatch.setattr(router_actor, "time", clock)
        wished.append(await actor.scale(question))
    turn = await actor.decide(make_turn("q1", 1), PLACES)
    assert isinstance(turn, Placement)
    assert (turn.replica, wished) == (R2, [2, 2, 2, 1])
    await actor.lose(R2)
    assert (await sampled(actor))["warmturn_autoscaling_surprises",] == 1


async def test_nothing_is_scaled_while_not_all_report(actor: RouterActor) -> None:
    """One that starts, or did not find this router yet; the status says who."""
    await actor.report(make_report("r1"))
    question = ScaleQuestion(frozenset({R1, R2}), 5, 0, AutoscaleSettings())
    assert await actor.scale(question) == 5
    wish = (await actor.configure(Tunables(), None, GATEWAY)).autoscaling
    assert wish is not None
    assert wish.reason == "stays at 5: r2 does not report"


@pytest.mark.parametrize("has_served", [False, True])
async def test_a_request_wakes_a_fleet_that_has_no_replica(
    actor: RouterActor, has_served: bool
) -> None:
    """It waits in a gateway, and the router knows by Serve alone; one that starts is enough."""
    if has_served:
        await actor.report(make_report("r1"))
        await actor.lose(R1)
    nobody, settings = frozenset[ReplicaId](), AutoscaleSettings(min_replicas=0)
    assert await actor.scale(ScaleQuestion(nobody, 0, 0, settings)) == 0
    assert await actor.scale(ScaleQuestion(nobody, 0, 2, settings)) == 1
    assert await actor.scale(ScaleQuestion(nobody, 1, 2, settings)) == 1
    wish = (await actor.configure(Tunables(), None, GATEWAY)).autoscaling
    assert wish is not None
    assert wish.reason == "stays at 1: none runs"


@pytest.mark.parametrize("was_asked", [True, False])
async def test_an_end_that_is_told_twice_counts_once(actor: RouterActor, was_asked: bool) -> None:
    """A report whose answer was lost is sent again, most of all while this router is a new one."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, session="s1")
    if was_asked:
        await actor.decide(turn, {R1: 64})
    end = TurnEnd(turn.request, turn.prompt_tokens, 0, 5, 0.25)
    for _ in range(2):
        await actor.report(make_report("r1", batch=None, ends=(end,)))
    now = await sampled(actor)
    assert now["warmturn_prompt_tokens",] == turn.prompt_tokens
    assert now["warmturn_compared_turns",] == was_asked


async def test_a_gateway_that_does_not_know_the_block_size_yet(actor: RouterActor) -> None:
    """Its prompts take as many blocks as they would, not one for each token."""
    await actor.report(make_report("r1", state=make_state("r1", total_blocks=10, free_blocks=10)))
    turn = RouteRequest(RequestId("q1"), "http-q1", SessionId("s1"), prompt_tokens=9 * BLOCK_SIZE)
    assert await actor.decide(turn, {R1: 64}) is not None
    (replica,) = await actor.replicas()
    assert replica["pinned_blocks"] == 9


async def test_while_all_drain_somebody_takes_turns(actor: RouterActor) -> None:
    """The last replica of a fleet that may be empty does, until it is stopped."""
    await actor.report(make_report("r1"))
    actor._scaling.wish = Wish(0, (R1,), (), "nobody asks")
    placement = await actor.decide(make_turn("q1", 1), {R1: 64})
    assert isinstance(placement, Placement)
    assert placement.replica == R1


async def test_turns_without_a_decision_or_a_first_token_are_not_compared(
    actor: RouterActor,
) -> None:
    """A gateway placed one by itself, the client of the other left; their tokens count."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, session="s1")
    await actor.decide(turn, {R1: 64})
    ends = (TurnEnd(turn.request, 0, 0, 0, None), TurnEnd(RequestId("own"), 10, 4, 5, 0.25))
    await actor.report(make_report("r1", ends=ends))
    now = await sampled(actor)
    assert now["warmturn_compared_turns",] == 0
    assert now["warmturn_prompt_tokens",] == 10


async def test_waiting_is_counted(actor: RouterActor) -> None:
    """How many wait; how long those waited that found room; how many gave up."""
    await actor.report(make_report("r1", state=FULL))
    for name in ("q1", "q2"):
        assert await actor.decide(make_turn(name, 1, 2), {R1: 64}) is None
    assert (await sampled(actor))["warmturn_waiting_requests",] == 2
    await actor.give_up(RequestId("q2"))
    await actor.report(make_report("r1", state=ROOMY))
    now = await sampled(actor)
    assert now["warmturn_waiting_requests",] == 0
    assert (now["warmturn_waited_turns",], now["warmturn_unplaced_turns",]) == (1, 1)
    assert now["warmturn_waited_seconds",] > 0


async def overload(actor: RouterActor, **tunables: float) -> None:
    """Let 20 sessions run whose turns are all late; 19 of them may from now on."""
    settings = Tunables(ttft_slo_s=0, max_late_ratio=0, **tunables)  # type: ignore[arg-type]
    await actor.configure(settings, None, GATEWAY)
    fast = make_state("r1", prefill_tokens_per_s=1e9, max_requests=64)
    await actor.report(make_report("r1", state=fast))
    turns = [make_turn(f"first-{number}", number, session=f"s{number}") for number in range(20)]
    for turn in turns:
        assert isinstance(await actor.decide(turn, PLACES), Placement)
    names = tuple(turn.request for turn in turns)
    ends = tuple(TurnEnd(name, 6, 0, 5, 0.25) for name in names)
    await actor.report(make_report("r1", state=fast, batch=None, first_tokens=names, ends=ends))
    actor._let_go(time.monotonic())


async def test_while_turns_are_late_a_new_session_waits_for_a_place(actor: RouterActor) -> None:
    """It is told apart from what waits for room; a session that runs goes on."""
    await overload(actor)
    assert await actor.decide(make_turn("q1", 50, session="new"), PLACES) is None
    assert isinstance(await actor.decide(make_turn("q2", 7, session="s7"), PLACES), Placement)
    now = await sampled(actor)
    assert (now["warmturn_held_requests",], now["warmturn_waiting_requests",]) == (1, 0)
    assert (now["warmturn_running_sessions",], now["warmturn_session_limit",]) == (19, 19)
    status = await actor.configure(actor._router.tunables, None, GATEWAY)
    assert (status.running_sessions, status.session_limit) == (19, 19)
    told = await actor.decision("q1")
    assert told
    assert told["waited_for"].startswith("waits for a place: 19 sessions run")


async def test_a_session_that_finds_no_place_is_shown(actor: RouterActor) -> None:
    """While it waits, also to those who ask for what is new, and how that ended."""
    await overload(actor, max_park_s=0.05)
    assert await actor.decide(make_turn("q1", 50, session="new"), PLACES) is None
    assert await actor.decide(make_turn("q2", 20, session="s0"), PLACES) is None
    listed = json.loads(await actor.sessions(3, 0.0))["sessions"]
    assert {(one["session"], one["replica"], one["turns"]) for one in listed if one["waits"]} == {
        ("new", None, 0),
        ("s0", R1, 1),
    }
    for session in ("new", "s0"):
        told = await actor.session(SessionId(session))
        assert told
        last = told["turns"][-1]
        assert (last["state"], last["replica"], last["rule"]) == ("waits", None, None)
    await asyncio.sleep(0.06)
    actor._let_go(time.monotonic())
    told = await actor.session(SessionId("new"))
    assert told
    assert [turn["state"] for turn in told["turns"]] == ["refused"]
    listed = json.loads(await actor.sessions(100))["sessions"]
    assert not any(one["waits"] for one in listed)


async def test_who_waited_too_long_for_a_place_is_turned_away(actor: RouterActor) -> None:
    """Whoever asks hears it, the turn is shown and counted so, and nothing of it is left."""
    await overload(actor, max_park_s=0.05)
    turn = make_turn("q1", 50, session="new")
    assert await actor.decide(turn, PLACES) is None
    question = asyncio.create_task(actor.wait(turn, PLACES))
    await asyncio.sleep(0.06)
    actor._let_go(time.monotonic())
    refusal = await question
    assert isinstance(refusal, Refusal)
    assert await stands(actor, "q1") == "refused"
    told = await actor.decision("q1")
    assert told is not None
    assert told["waited_s"] >= 0.05
    now = await sampled(actor)
    assert (now["warmturn_refused_turns",], now["warmturn_held_requests",]) == (1, 0)
    assert now["warmturn_unplaced_turns",] == 0


async def test_who_may_not_wait_is_turned_away_at_once(actor: RouterActor) -> None:
    """The first answer says so."""
    await overload(actor, max_park_s=0)
    refusal = await actor.decide(make_turn("q1", 50, session="new"), PLACES)
    assert isinstance(refusal, Refusal)
    told = await actor.decision("q1")
    assert told
    assert (told["state"], told["refused_for"]) == ("refused", refusal.reason)


async def test_who_is_turned_away_without_a_name_leaves_no_session(actor: RouterActor) -> None:
    """Else such turns would push out those of sessions that run."""
    await overload(actor, max_park_s=0)
    for name, session in (("q1", None), ("q2", "new")):
        refusal = await actor.decide(make_turn(name, 50, session=session), PLACES)
        assert isinstance(refusal, Refusal)
    assert await actor.session(SessionId("q1")) is None
    assert await actor.session(SessionId("new"))


async def test_dispersion(actor: RouterActor) -> None:
    """Two requests on one of two replicas: a variance of 1 by a mean of 1."""
    await actor.report(make_report("r1", state=make_state("r1", running=2)))
    await actor.report(make_report("r2", state=make_state("r2")))
    now = await sampled(actor)
    assert now["warmturn_dispersion_ratio",] == 1
    assert (now["warmturn_replica_requests", "r1"], now["warmturn_replica_requests", "r2"]) == (
        2,
        0,
    )
    assert now["warmturn_replicas",] == 2


async def test_decisions_are_listed_newest_first(actor: RouterActor) -> None:
    """In short; what is not known yet is None."""
    await actor.report(make_report("r1"))
    for name in ("q1", "q2", "q3"):
        await actor.decide(make_turn(name, 1, session="s1"), {R1: 64})
    end = TurnEnd(RequestId("q2"), 6, 4, 5, 0.25)
    await actor.report(make_report("r1", ends=(end,)))
    newest, ended = json.loads(await actor.decisions(2))["decisions"]
    assert (newest["request"], newest["ttft_s"], newest["state"]) == ("http-q3", None, "runs")
    assert (ended["request"], ended["session"], ended["replica"]) == ("http-q2", "s1", "r1")
    assert (ended["rule"], ended["prompt_tokens"], ended["state"]) == ("stayed", 6, "answered")
    assert (ended["expected_cached_tokens"], ended["cached_tokens"]) == (4, 4)
    assert (ended["expected_ttft_s"], ended["ttft_s"]) == (pytest.approx(0.004, abs=0.01), 0.25)


async def test_when_a_turn_came_is_told_at_once(actor: RouterActor) -> None:
    """Also of one that waits; when it is decided on, it is still the same."""
    turn, full = make_turn("q2", 2), {R1: 1}
    await actor.report(make_report("r1"))
    await actor.decide(make_turn("q1", 1), full)
    assert await actor.decide(turn, full) is None
    waits, runs = json.loads(await actor.decisions(2))["decisions"]
    assert runs["arrived_at"] <= waits["arrived_at"]
    assert waits["decided_at"] is None
    await actor.lose(R1)
    await actor.report(make_report("r2"))
    assert isinstance(await actor.decide(turn, {R2: 64}), Placement)
    told = await actor.decision("q2")
    assert told is not None
    assert told["arrived_at"] == waits["arrived_at"] <= told["decided_at"]


async def test_a_client_may_use_a_request_id_again(actor: RouterActor) -> None:
    """Each turn has an id of its own besides, by which it is found."""
    await actor.report(make_report("r1"))
    for name, session in (("q1", "s1"), ("q2", "s2"), ("q3", "s3")):
        turn = replace(make_turn(name, 1, session=session), http_id="retry")
        await actor.decide(turn, {R1: 64})
    listed = json.loads(await actor.decisions(3))["decisions"]
    assert [(one["id"], one["request"]) for one in listed] == [
        ("q3", "retry"),
        ("q2", "retry"),
        ("q1", "retry"),
    ]
    for name, session in (("retry", "s3"), ("q2", "s2")):
        told = await actor.decision(name)
        assert told is not None
        assert (told["session"], told["request"]) == (session, "retry")
        story = await actor.session(SessionId(session))
        assert story is not None
        assert [one["id"] for one in story["turns"]] == [told["id"]]


async def stands(actor: RouterActor, name: str) -> str:
    """Return how a turn stands, as everybody says who tells of it."""
    listed = json.loads(await actor.decisions(2000))["decisions"]
    told = await actor.decision(name)
    assert told is not None
    states = {told["state"]} | {one["state"] for one in listed if one["id"] == name}
    if story := await actor.session(SessionId("s1")):
        states |= {one["state"] for one in story["turns"] if one["id"] == name}
    [state] = states
    return str(state)


@pytest.mark.parametrize("outcome", Outcome)
async def test_how_a_turn_stands(actor: RouterActor, outcome: Outcome) -> None:
    """From waiting for room to what came of it in the end."""
    await actor.report(make_report("r1", state=FULL))
    turn = make_turn("q1", 1, 2, session="s1")
    assert await actor.decide(turn, {R1: 64}) is None
    assert await stands(actor, "q1") == "waits"
    await actor.report(make_report("r1", state=ROOMY))
    assert await stands(actor, "q1") == "runs"
    end = TurnEnd(turn.request, 10, 0, 5, 0.25, outcome=outcome)
    await actor.report(make_report("r1", batch=None, ends=(end,)))
    assert await stands(actor, "q1") == outcome


async def test_a_turn_whose_end_nobody_tells(actor: RouterActor) -> None:
    """It waits and runs no longer: its client left before it was placed, or it was lost after."""
    await actor.report(make_report("r1", state=FULL))
    await actor.decide(make_turn("left", 1, 2, session="s1"), {R1: 64})
    await actor.give_up(RequestId("left"))
    assert await stands(actor, "left") == "aborted"
    await actor.report(make_report("r1", state=ROOMY))
    await actor.decide(make_turn("lost", 1, 2, session="s1"), {R1: 64})
    await actor.lose(R1)
    assert await stands(actor, "lost") == "lost"
    sent = make_turn("sent", 1, 2, session="s1")
    await actor.decide(sent, {R1: 64})
    await actor.give_up(sent.request)
    assert await stands(actor, "sent") == "aborted"
    await actor.report(make_report("r2", turns=frozenset({sent.request})))
    assert await stands(actor, "sent") == "runs"


async def test_sessions_are_listed_newest_first(actor: RouterActor) -> None:
    """With where they live, and whether a turn of theirs runs."""
    await actor.report(make_report("r1"))
    for name in ("one", "two", "three"):
        await actor.decide(make_turn(name, 1, session=name), {R1: 64})
    listed = json.loads(await actor.sessions(2))["sessions"]
    assert [one["session"] for one in listed] == ["three", "two"]
    assert all(one["replica"] == R1 and one["running"] for one in listed)


async def test_of_the_sessions_only_those_seen_lately(actor: RouterActor) -> None:
    """Whoever asks again and again need not hear of the others once more."""
    await actor.report(make_report("r1"))
    await actor.decide(make_turn("one", 1, session="one"), {R1: 64})
    await asyncio.sleep(0.05)
    await actor.decide(make_turn("two", 1, session="two"), {R1: 64})
    listed = json.loads(await actor.sessions(10, 0.04))["sessions"]
    assert [one["session"] for one in listed] == ["two"]


async def test_a_session_is_told_with_its_last_turn(actor: RouterActor) -> None:
    """Who speaks, how long the first token took, and how much was cached of all its prompts."""
    await actor.report(make_report("r1"))
    for name, cached_tokens in (("q1", 0), ("q2", 5)):
        turn = make_turn(name, 1, 2, session="s1")
        turn.client = "codex"
        await actor.decide(turn, {R1: 64})
        end = TurnEnd(turn.request, 10, cached_tokens, 5, 0.25)
        await actor.report(make_report("r1", ends=(end,)))
    [told] = json.loads(await actor.sessions(10))["sessions"]
    assert (told["session"], told["client"], told["running"]) == ("s1", "codex", False)
    assert (told["prompt_tokens"], told["ttft_s"], told["hit_ratio"]) == (10, 0.25, 0.25)


async def test_how_a_session_went_and_where_its_kv_is(actor: RouterActor) -> None:
    """Each turn with what became of its prompt; each memory with its part of the last one."""
    await actor.report(make_report("r1"))
    assert await actor.session(SessionId("s1")) is None
    turn = make_turn("q1", 1, 2, session="s1")
    turn.prefix_break = PrefixBreak(Kind.TOOLS_CHANGED, 4, None, None, 100)
    await actor.decide(turn, {R1: 64})
    stored = [
        make_stored(1, 2, names=[11, 12]),
        make_stored(1, names=[11], tier=Tier.CPU),
        make_stored(1, names=[11], tier=Tier.SHARED),
    ]
    end = TurnEnd(turn.request, 10, 0, 5, 0.25)
    await actor.report(make_report("r1", batch=EventBatch(R1, 1, 1, stored), ends=(end,)))
    told = await actor.session(SessionId("s1"))
    assert told is not None
    [first] = told["turns"]
    assert (first["turn"], first["request"], first["rule"]) == (1, "http-q1", "new")
    assert first["prefix_break"]["kind"] == "tools_changed"
    assert first["tokens"]["first_seen_tokens"] == 10
    assert (first["ttft_s"], first["output_tokens"]) == (0.25, 5)
    assert told["now"]["turns"] == 1
    assert (told["kv"]["blocks"], told["kv"]["stretches"]) == (2, 2)
    assert told["kv"]["memories"] == [
        {"replica": "r1", "tier": "gpu", "held_ratio": 1.0, "held": "xx"},
        {"replica": "r1", "tier": "cpu", "held_ratio": 0.5, "held": "x."},
        {"replica": None, "tier": "shared", "held_ratio": 0.5, "held": "x."},
    ]


async def test_a_session_that_only_its_replica_remembers(actor: RouterActor) -> None:
    """A router that started anew knows where it lives, but no turns."""
    last = LastTurn(SessionId("s1"), 1, make_hashes(1)[0], 2, -1.0)
    snapshot = Snapshot(R1, 1, 0, [])
    await actor.report(make_report("r1", batch=None, snapshot=snapshot, last_turns=(last,)))
    told = await actor.session(SessionId("s1"))
    assert told is not None
    assert (told["now"]["replica"], told["turns"], told["kv"]) == (R1, [], None)
    [listed] = json.loads(await actor.sessions(10))["sessions"]
    assert (listed["session"], listed["client"], listed["hit_ratio"]) == ("s1", None, None)


async def test_what_a_replica_holds_in_each_tier(actor: RouterActor) -> None:
    """Beside how much fits; what left a tier does not count."""
    stored: list[Event] = [
        make_stored(1, 2, names=[11, 12]),
        make_stored(1, 2, names=[11, 12], tier=Tier.CPU),
        Removed(Tier.GPU, [EngineHash(12)]),
    ]
    batch = EventBatch(R1, 1, 0, stored)
    await actor.report(make_report("r1", batch=batch, cpu_tokens=100 * BLOCK_SIZE))
    [told] = await actor.replicas()
    assert (told["gpu_blocks"], told["cpu_blocks"], told["cpu_total_blocks"]) == (1, 2, 100)


@pytest.mark.parametrize("what", ["sessions", "decisions"])
async def test_a_long_list_keeps_nobody_waiting(
    actor: RouterActor, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is told in parts, and other calls are answered between them."""
    for module in (session_list, explain):
        monkeypatch.setattr(module, "AT_ONCE", 1)
    await actor.report(make_report("r1"))
    for name in ("one", "two", "three"):
        await actor.decide(make_turn(name, 1, session=name), {R1: 64})
    listing = asyncio.create_task(getattr(actor, what)(10))
    await asyncio.sleep(0)
    assert await actor.decision("http-one") is not None
    assert not listing.done()
    assert len(json.loads(await listing)[what]) == 3


def _total(actor: RouterActor, *metrics: Metric) -> float:
    names = {metric.name for metric in metrics}
    return sum(one.value for one in actor._turns.totals.samples() if one.metric in names)


async def test_tokens_of_a_turn_whose_client_left_are_told(actor: RouterActor) -> None:
    """Its replica says how it ended, and has its memory until then."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, 2)
    await actor.decide(turn, {R1: 64})
    has = frozenset({turn.request})
    await actor.report(
        make_report("r1", batch=None, turns=has, first_tokens=(turn.request,)),
    )
    await actor.give_up(turn.request)
    assert actor._router.in_flight.load(R1).decoding == 1
    end = TurnEnd(turn.request, turn.prompt_tokens, 0, 3, 0.1, 0.2, Outcome.ABORTED)
    await actor.report(make_report("r1", batch=None, ends=(end,)))
    assert _total(actor, PROMPT_TOKENS) == turn.prompt_tokens
    assert _total(actor, HIT_TOKENS, MISSED_TOKENS) == turn.prompt_tokens
    assert actor._router.in_flight.load(R1).decoding == 0


async def test_a_replica_tells_nothing_of_a_turn_that_runs_elsewhere(actor: RouterActor) -> None:
    """It was taken for lost, though it was not; where the turn runs now is who tells its end."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, 2)
    await actor.decide(turn, {R1: 64})
    await actor.lose(R1)
    await actor.report(make_report("r2"))
    await actor.decide(turn, {R2: 64})
    cut_off = TurnEnd(turn.request, 10, 0, 0, None, 0.2, Outcome.ABORTED)
    await actor.report(make_report("r1", first_tokens=(turn.request,), ends=(cut_off,)))
    assert actor._router.in_flight.load(R2).prefilling == 1
    end = TurnEnd(turn.request, 10, 0, 300, 0.1, 9.0)
    await actor.report(make_report("r2", batch=None, ends=(end,)))
    told = await actor.decision("q1")
    assert told
    assert (told["state"], told["outcome"]["replica"]) == ("answered", "r2")


async def test_a_turn_that_did_not_start_is_none(actor: RouterActor) -> None:
    """It found no place at its replica, waited, and was given up: its session does not run."""
    await actor.report(make_report("r1"))
    turn = make_turn("q1", 1, 2, session="s")
    await actor.decide(turn, {R1: 64})
    await actor.report(make_report("r1", state=FULL, batch=None))
    assert await actor.decide(turn, {R1: 64}) is None
    await actor.give_up(turn.request)
    session = actor._router.sessions.get(SessionId("s"))
    assert session
    assert session.ended_at_s is not None


async def test_a_gateway_without_settings_changes_none(actor: RouterActor) -> None:
    """As each is when it starts, or if its own were refused; a new one is asked first else."""
    await actor.configure(Tunables(max_park_s=60), None, GATEWAY)
    newer = replace(GATEWAY, gateway="g2", started_at_s=GATEWAY.started_at_s + 1)
    status = await actor.configure(None, None, newer)
    assert status.tunables.max_park_s == 60
    status = await actor.configure(Tunables(max_park_s=5), None, newer)
    assert status.tunables.max_park_s == 5


async def test_a_session_runs_while_one_of_its_turns_does(actor: RouterActor) -> None:
    """Subagents have several at a time."""
    await actor.report(make_report("r1"))
    for name in ("q1", "q2"):
        await actor.decide(make_turn(name, 1, 2, session="s"), {R1: 64})
    for ended, is_running in (("q1", True), ("q2", False)):
        end = TurnEnd(RequestId(ended), 10, 0, 3, 0.1, 0.2)
        await actor.report(make_report("r1", batch=None, ends=(end,)))
        [told] = json.loads(await actor.sessions(10))["sessions"]
        story = await actor.session(SessionId("s"))
        assert story
        assert told["running"] is story["now"]["running"] is is_running

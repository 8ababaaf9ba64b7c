"""Decisions and replicas as JSON for people; every number names its unit."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from policies.candidate import pinned_blocks, requests
from policies.residency import NO_RESIDENTS, Residents
from policies.router import Router
from policies.types import ReplicaState, Tier
from serve_app.decision_log import LoggedTurn
from serve_app.fleet import Fleet
from serve_app.json_parts import in_parts
from serve_app.replica_report import Outcome
from serve_app.turn_state import TurnState, TurnStates

Json = dict[str, Any]


AT_ONCE = 500
"""Decisions told in one go, about 2 ms; then whoever else calls the actor has a turn."""


def decision(turn: LoggedTurn, states: TurnStates) -> Json:
    """Return why a turn went where, what it cost on each replica, and what came of it."""
    answer: Json = {
        "id": turn.request,
        "request": turn.http_id,
        "state": _state(turn, states),
        "session": turn.session,
        "client": turn.client,
        "arrived_at": turn.arrived_at,
        "prompt_tokens": turn.prompt_tokens,
        "not_rendered": turn.not_rendered,
        "prefix_break": turn.prefix_break and asdict(turn.prefix_break),
        "decisions": turn.decisions,
        "waited_for": turn.park and turn.park.reason,
        "refused_for": turn.refusal and turn.refusal.reason,
    }
    if turn.decision or turn.refusal:
        answer["waited_s"] = _rounded(turn.waited_s)
    if made := turn.decision:
        answer |= {
            "replica": made.replica,
            "home": made.home,
            "rule": made.rule,
            "reason": made.reason,
            "cost_s": _rounded(sum(made.seconds[made.replica].values())),
            "expected_ttft_s": _rounded(made.ttft_s),
            "expected_cached_tokens": {
                tier.name.lower(): tokens for tier, tokens in made.cached_tokens.items()
            },
            "decided_at": turn.decided_at,
            "weights": turn.weights,
            "seconds": {
                replica: {scorer: _rounded(value) for scorer, value in scores.items()}
                for replica, scores in made.seconds.items()
            },
        }
    if end := turn.end:
        answer["outcome"] = {
            "replica": turn.ended_on,
            "prompt_tokens": end.prompt_tokens,
            "cached_tokens": end.cached_tokens,
            "output_tokens": end.output_tokens,
            "ttft_s": None if end.ttft_s is None else _rounded(end.ttft_s),
            "tokens": turn.tokens and asdict(turn.tokens),
        }
    return answer


async def decisions(turns: Sequence[LoggedTurn], states: TurnStates) -> bytes:
    """Return in short where turns went and what came of them; null where it is not known yet."""
    told = await in_parts(turns, lambda turn: _in_short(turn, states), AT_ONCE)
    return b'{"decisions":%s}' % told


def _in_short(turn: LoggedTurn, states: TurnStates) -> Json:
    made, end = turn.decision, turn.end
    return {
        "id": turn.request,
        "request": turn.http_id,
        "session": turn.session,
        "state": _state(turn, states),
        "arrived_at": turn.arrived_at,
        "decided_at": turn.decided_at,
        "replica": made and made.replica,
        "rule": made and made.rule,
        "prompt_tokens": turn.prompt_tokens,
        "expected_cached_tokens": made and sum(made.cached_tokens.values()),
        "cached_tokens": end and end.cached_tokens,
        "expected_ttft_s": made and _rounded(made.ttft_s),
        "ttft_s": None if end is None or end.ttft_s is None else _rounded(end.ttft_s),
    }


def _state(turn: LoggedTurn, states: TurnStates) -> TurnState:
    outcome = turn.end.outcome if turn.end else Outcome.REFUSED if turn.refusal else None
    return states.of(turn.request, outcome, is_given_up=turn.is_given_up)


def replicas(fleet: Fleet, router: Router, now_s: float) -> list[Json]:
    """Return what the router knows of replicas: their own reports, and what was booked there."""
    residents = router.sessions.residents(router.in_flight.sessions(), now_s)
    return [
        _replica(one, router, residents.get(one.replica, NO_RESIDENTS))
        | {"cpu_total_blocks": fleet.cpu_blocks(one.replica)}
        for one in fleet.states()
    ]


def _replica(state: ReplicaState, router: Router, residents: Residents) -> Json:
    load = router.in_flight.load(state.replica)
    in_tier = router.index.tier_blocks(state.replica)
    return asdict(state) | {
        "requests": requests(state, load),
        "pinned_blocks": pinned_blocks(state, load),
        "booked_uncached_tokens": load.uncached_tokens,
        "resident_sessions": _rounded(residents.sessions),
        "resident_blocks": _rounded(residents.blocks),
        "held_blocks": router.index.held_blocks(state.replica),
        "gpu_blocks": in_tier.get(Tier.GPU, 0),
        "cpu_blocks": in_tier.get(Tier.CPU, 0),
    }


def _rounded(value: float) -> float:
    return round(value, 4)

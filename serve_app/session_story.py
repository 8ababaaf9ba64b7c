"""One session for people, in JSON: turn after turn, and where its KV is now."""

from dataclasses import asdict
from typing import Any

from policies.router import Router
from policies.types import SessionId, Tier
from policies.whereabouts import PromptSample, whereabouts
from serve_app.session_list import in_short
from serve_app.session_turns import SessionHistory, SessionTurn, SessionTurns
from serve_app.turn_state import TurnStates

Json = dict[str, Any]


def session(
    session: SessionId, states: TurnStates, history: SessionTurns, now_s: float
) -> Json | None:
    """Return all that is known of a session; None if it is nothing."""
    router = states.router
    known, turns = router.sessions.get(session), history.get(session)
    if known is None and turns is None:
        return None
    return {
        "session": session,
        "client": turns and turns.client,
        "now": known
        and in_short(
            session, known, turns, is_running=session in router.running_sessions, now_s=now_s
        ),
        "kv": turns and _kv(turns.sample, router),
        "forgotten_turns": turns.forgotten_turns if turns else 0,
        "turns": _turns(turns, states) if turns else [],
    }


def _kv(prompt: PromptSample, router: Router) -> Json:
    """Return for each memory that has some of a prompt how much, and which of its stretches."""
    held = whereabouts(prompt, router.index)
    return {
        "blocks": prompt.blocks,
        "stretches": len(prompt.hashes),
        "memories": [
            {
                "replica": replica,
                "tier": tier.name.lower(),
                "held_ratio": round(sum(has) / len(has), 4),
                "held": "".join("x" if one else "." for one in has),
            }
            for (replica, tier), has in sorted(held.items(), key=_replica_then_tier)
        ],
    }


def _replica_then_tier(item: tuple[tuple[str | None, Tier], Any]) -> tuple[bool, str, Tier]:
    (replica, tier), _ = item
    return replica is None, replica or "", tier


def _turns(history: SessionHistory, states: TurnStates) -> list[Json]:
    numbered = enumerate(history.turns, history.forgotten_turns + 1)
    return [{"turn": number} | _turn(turn, states) for number, turn in numbered]


def _turn(turn: SessionTurn, states: TurnStates) -> Json:
    return {
        "id": turn.request,
        "request": turn.http_id,
        "state": states.of(turn.request, turn.outcome, is_given_up=turn.is_given_up),
        "arrived_at": turn.arrived_at,
        "decided_at": turn.decided_at,
        "replica": turn.replica,
        "rule": turn.rule,
        "prompt_tokens": turn.prompt_tokens,
        "prefix_break": turn.prefix_break and asdict(turn.prefix_break),
        "waited_s": round(turn.waited_s, 4),
        "expected_ttft_s": _rounded(turn.expected_ttft_s),
        "ttft_s": _rounded(turn.ttft_s),
        "cached_tokens": turn.cached_tokens,
        "output_tokens": turn.output_tokens,
        "tokens": turn.tokens and asdict(turn.tokens),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)

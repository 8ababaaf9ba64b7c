"""The sessions as a list for people, in JSON: thousands of them, every two seconds."""

from typing import Any

from policies.router import Router
from policies.sessions import Session
from policies.types import SessionId
from serve_app.json_parts import in_parts
from serve_app.session_turns import SessionHistory, SessionTurns

AT_ONCE = 500
"""Sessions told in one go, about 2 ms; then whoever else calls the actor has a turn."""

Json = dict[str, Any]


async def sessions(
    router: Router, history: SessionTurns, limit: int, within_s: float, now_s: float
) -> bytes:
    """Return as JSON the sessions seen in the last `within_s`, the most recent one first.

    With them come those that wait: first the ones that were never placed.
    """
    since_s = now_s - within_s
    waiting = router.waiting.sessions | router.waiting.held_sessions
    running = router.running_sessions
    latest = reversed(list(router.sessions))
    listed: list[tuple[SessionId, Session | None]] = [
        (session, None) for session in waiting if session and router.sessions.get(session) is None
    ]
    listed += [one for one in latest if one[1].seen_at_s >= since_s or one[0] in waiting]

    def tell(item: tuple[SessionId, Session | None]) -> Json:
        session, known = item
        told = in_short(
            session, known, history.get(session), is_running=session in running, now_s=now_s
        )
        told["waits"] = session in waiting
        return told

    return b'{"sessions":%s}' % await in_parts(listed[:limit], tell, AT_ONCE)


def in_short(
    session: SessionId,
    known: Session | None,
    history: SessionHistory | None,
    *,
    is_running: bool,
    now_s: float,
) -> Json:
    """Return what is known of a session; None is what this router did not see.

    One that was never placed is not `known`.
    """
    told: Json = {
        "session": session,
        "client": None,
        "replica": known and known.replica,
        "turns": known.turns if known else 0,
        "blocks": known and known.blocks,
        "think_s": known and round(known.think_s, 4),
        "running": is_running,
        "seen_s_ago": round(now_s - known.seen_at_s, 4) if known else 0,
        "prompt_tokens": None,
        "ttft_s": None,
        "hit_ratio": None,
    }
    if history:
        told["client"] = history.client
        told["prompt_tokens"] = history.turns[-1].prompt_tokens
        told["ttft_s"] = None if history.ttft_s is None else round(history.ttft_s, 4)
        if history.ended_tokens:
            told["hit_ratio"] = round(history.cached_tokens / history.ended_tokens, 4)
    return told

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
    """Return the sessions seen in the last `within_s`, the most recent one first, as JSON."""
    since_s = now_s - within_s
    latest = reversed(list(router.sessions))
    newest = [item for item in latest if item[1].seen_at_s >= since_s][:limit]
    running = router.running_sessions

    def tell(item: tuple[SessionId, Session]) -> Json:
        session, known = item
        return in_short(
            session, known, history.get(session), is_running=session in running, now_s=now_s
        )

    return b'{"sessions":%s}' % await in_parts(newest, tell, AT_ONCE)


def in_short(
    session: SessionId,
    known: Session,
    history: SessionHistory | None,
    *,
    is_running: bool,
    now_s: float,
) -> Json:
    """Return what is known of a session; None is what this router did not see."""
    told: Json = {
        "session": session,
        "client": None,
        "replica": known.replica,
        "turns": known.turns,
        "blocks": known.blocks,
        "think_s": round(known.think_s, 4),
        "running": is_running,
        "seen_s_ago": round(now_s - known.seen_at_s, 4),
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

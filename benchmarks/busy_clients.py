"""Clients that ask a service for all that it can give, for a while."""

import asyncio
import time
from dataclasses import dataclass
from itertools import count

import httpx

TURNS = 4
"""Of one session, each of which extends the last."""
TOKENS = 32
"""Of each answer."""
WORDS = 200
"""With which a session begins."""


@dataclass(slots=True)
class Answered:
    """How many turns clients had from a service."""

    turns: int = 0
    in_time: float = 0.0
    """Of one that ended too late, the part of its time that was before."""


async def keep_busy(
    http: httpx.AsyncClient, url: str, model: str, sessions: int, name: str, for_s: float
) -> Answered:
    """Have so many sessions at a time take turns for so long, and wait for the last answers.

    Their ids begin with the name. Where one ends, another begins.

    Raises:
        httpx.HTTPError: the service has no answer.
    """
    answered = Answered()
    ids = (f"{name}, session {number}" for number in count())
    end_s = time.perf_counter() + for_s

    async def client() -> None:
        for session in ids:
            messages = [session + ": " + " ".join(f"w{i}" for i in range(WORDS))]
            for turn in range(TURNS):
                began_s = time.perf_counter()
                if began_s >= end_s:
                    return
                messages.append(f"go on {turn}")
                await _turn(http, url, model, session, messages)
                took_s = time.perf_counter() - began_s
                answered.turns += 1
                answered.in_time += min(1.0, (end_s - began_s) / took_s)

    await asyncio.gather(*(client() for _ in range(sessions)))
    return answered


async def _turn(
    http: httpx.AsyncClient, url: str, model: str, session: str, messages: list[str]
) -> None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text} for text in messages],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
    }
    url, headers = f"{url}/v1/chat/completions", {"x-session-id": session}
    async with http.stream("POST", url, json=body, headers=headers) as answer:
        async for _ in answer.raise_for_status().aiter_raw():
            pass

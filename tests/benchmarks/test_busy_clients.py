"""Clients that keep a service busy: how many ask at a time, what they ask, and what counts."""

import asyncio
from collections import defaultdict
from itertools import pairwise

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from benchmarks.busy_clients import TURNS, Answered, keep_busy


class FakeService:
    """Takes so long for each turn, and keeps which there were."""

    def __init__(self, takes_s: float, status: int = 200) -> None:
        self.sessions = defaultdict[str, list[list[str]]](list)
        self.most = 0
        self._now = 0
        self._takes_s, self._status = takes_s, status

    async def turn(self, request: Request) -> Response:
        messages = [one["content"] for one in (await request.json())["messages"]]
        self.sessions[request.headers["x-session-id"]].append(messages)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self._takes_s)
        self._now -= 1
        return PlainTextResponse("answer", self._status)


async def _keep_busy(service: FakeService, sessions: int, for_s: float) -> Answered:
    app = Starlette(routes=[Route("/v1/chat/completions", service.turn, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http:
        return await keep_busy(http, "http://service", "m", sessions, "busy", for_s)


async def test_each_turn_extends_its_session() -> None:
    """And a session that ended is followed by another, which begins otherwise."""
    service = FakeService(0.001)
    answered = await _keep_busy(service, 2, 0.3)
    turns = list(service.sessions.values())
    assert sum(map(len, turns)) == answered.turns
    for session in turns:
        assert len(session) <= TURNS
        assert all(later[:-1] == earlier for earlier, later in pairwise(session))
    assert len({session[0][0] for session in turns}) == len(turns) > 2
    assert sum(len(session) < TURNS for session in turns) <= 2
    assert service.most == 2


async def test_a_turn_counts_by_what_of_it_was_in_time() -> None:
    """It is waited for all the same."""
    answered = await _keep_busy(FakeService(1.0), 3, 0.25)
    assert answered.turns == 3
    assert 0.1 < answered.in_time / 3 <= 0.25


async def test_a_service_without_an_answer_is_told() -> None:
    """Nothing is compared with what it did not do."""
    with pytest.raises(httpx.HTTPStatusError, match="503"):
        await _keep_busy(FakeService(0.0, 503), 1, 1.0)

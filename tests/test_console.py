"""The router's knowledge over HTTP, from a fake router."""

import math
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.applications import Starlette

from policies.tunables import Tunables
from serve_app.console import console_routes
from serve_app.metric import Sample
from serve_app.metrics import SESSIONS
from serve_app.route_request import RouterStatus
from serve_app.router_client import RouterSilent
from serve_app.session_id import short_id

STATUS = RouterStatus(
    block_size=32,
    replicas=2,
    synced_replicas=2,
    sessions=1,
    blocks=7,
    shared_blocks=3,
    waiting=0,
    running_sessions=1,
    session_limit=None,
    started_s_ago=1.5,
    tunables=Tunables(),
    autoscaling=None,
)


class FakeRouter:
    """Answers what it was given, or is silent."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.settings_error: str | None = "a typo"
        self.status: RouterStatus | None = STATUS if answers else None
        self.asked: list[tuple[Any, ...]] = []

    async def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        assert timeout_s > 0
        self.asked.append((method, *args))
        if not self.answers:
            raise RouterSilent("no answer in 5 s")
        return self.answers[method]


async def _get(router: FakeRouter, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(Starlette(routes=console_routes(router, router)))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.get(path)


async def test_a_decision_by_its_request_id() -> None:
    """The id may be any that a client sent."""
    router = FakeRouter(decision={"replica": "r1"})
    response = await _get(router, "/warmturn/decisions/my-id.1")
    assert response.json() == {"replica": "r1"}
    assert router.asked == [("decision", "my-id.1")]


async def test_a_decision_that_nobody_remembers() -> None:
    """It's a 404 that says so."""
    response = await _get(FakeRouter(decision=None), "/warmturn/decisions/old")
    assert response.status_code == 404
    assert "old" in response.json()["error"]["message"]


async def test_replicas_with_the_routers_own_state() -> None:
    """Whether the router knows all is seen beside what it knows."""
    replicas = [{"replica": "r1", "requests": 4}, {"replica": "r2", "requests": 0}]
    response = await _get(FakeRouter(replicas=replicas), "/warmturn/replicas")
    assert response.json()["replicas"] == replicas
    assert response.json()["dispersion_ratio"] == 2
    assert response.json()["router"]["synced_replicas"] == 2
    assert response.json()["settings_error"] == "a typo"


@pytest.mark.parametrize(
    ("query", "limit", "within_s"),
    [
        ("", 100, math.inf),
        ("?limit=7", 7, math.inf),
        ("?limit=10000&within_s=2.5", 10000, 2.5),
    ],
)
async def test_as_many_sessions_as_asked_for(query: str, limit: int, within_s: float) -> None:
    """A hundred unless told otherwise, whenever they were seen."""
    router = FakeRouter(sessions=b'{"sessions":[]}')
    assert (await _get(router, f"/warmturn/sessions{query}")).json() == {"sessions": []}
    assert router.asked == [("sessions", limit, within_s)]


@pytest.mark.parametrize("within_s", ["-1", "soon", "", "1e9", "nan", "\u0663"])
async def test_a_time_that_is_none(within_s: str) -> None:
    """It's refused in words."""
    router = FakeRouter(sessions=b"")
    response = await _get(router, f"/warmturn/sessions?within_s={within_s}")
    assert response.status_code == 400
    assert "within_s" in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["s1", "a/b?c#d", "<img src=x onerror=alert(1)>", "é %41"])
async def test_a_session_by_its_id(name: str) -> None:
    """The id may be any that a client sent."""
    router = FakeRouter(session={"session": name})
    response = await _get(router, f"/warmturn/sessions/{quote(name, safe='')}")
    assert response.json() == {"session": name}
    assert router.asked == [("session", name)]


@pytest.mark.parametrize("what", ["session", "decision"])
@pytest.mark.parametrize("name", [".", "..", "a/..", "a+b&c"])
async def test_an_id_in_the_query(name: str, what: str) -> None:
    """Browsers take `.` and `..` for ways through a path, also where they are escaped."""
    router = FakeRouter(**{what: {what: name}})
    response = await _get(router, f"/warmturn/{what}s/?id={quote(name, safe='')}")
    assert response.json() == {what: name}
    assert router.asked == [(what, name)]


async def test_a_session_that_nobody_remembers() -> None:
    """It's a 404 that says so, in the form of the API's errors."""
    response = await _get(FakeRouter(session=None), "/warmturn/sessions/old")
    assert response.status_code == 404
    assert "old" in response.json()["error"]["message"]


@pytest.mark.parametrize(("asked", "found"), [("a/b/c", "a/b/c"), ("x" * 300, short_id("x" * 300))])
async def test_any_id_can_be_asked_for(asked: str, found: str) -> None:
    """Very long ones are known by their hash."""
    router = FakeRouter(decision={})
    await _get(router, f"/warmturn/decisions/{asked}")
    assert router.asked == [("decision", found)]


@pytest.mark.parametrize("limit", ["9" * 5000, "0", "-1", "10001", "many", "", "1.5", "\u0663"])
async def test_a_limit_that_is_none(limit: str) -> None:
    """It's refused in words."""
    response = await _get(FakeRouter(sessions=b""), f"/warmturn/sessions?limit={limit}")
    assert response.status_code == 400
    assert "limit" in response.json()["error"]["message"]


async def test_the_newest_decisions() -> None:
    """As many as asked for, no more than are remembered."""
    router = FakeRouter(decisions=b'{"decisions":[{"request":"r1"}]}')
    response = await _get(router, "/warmturn/decisions?limit=7")
    assert response.json() == {"decisions": [{"request": "r1"}]}
    assert router.asked == [("decisions", 7)]
    assert (await _get(router, "/warmturn/decisions?limit=2001")).status_code == 400


async def test_the_routers_metrics() -> None:
    """They come in the form that Prometheus reads, which asks for no JSON."""
    response = await _get(FakeRouter(samples=[Sample(SESSIONS.name, (), 3)]), "/warmturn/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert "warmturn_sessions 3.0" in response.text.splitlines()


@pytest.mark.parametrize(
    "path",
    [
        "decisions",
        "decisions/x",
        "metrics",
        "replicas",
        "sessions",
        "sessions/x",
    ],
)
async def test_a_silent_router_is_said_to_be_silent(path: str) -> None:
    """503, and when to try again."""
    response = await _get(FakeRouter(), f"/warmturn/{path}")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert "router" in response.json()["error"]["message"]

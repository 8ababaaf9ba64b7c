"""The gateway over fake replicas: what is passed, what is refused, what is tried again."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message

from policies.types import SessionId
from serve_app import passthrough
from serve_app.config import GatewayConfig
from serve_app.gateway import PASSED_PATHS, build_gateway
from serve_app.http_message import Headers, HttpRequest, Response, ResponseStart
from serve_app.metric import Metric
from serve_app.metrics import ERRORS, TTFT, VOLATILE_LINES_REMOVED
from serve_app.replicas import NoReplicas, ReplicaLost, ReplicasFull
from serve_app.route_request import RouteRequest, RouterStatus, TurnedAway
from serve_app.turns import Turns

JSON: Headers = ((b"content-type", b"application/json"),)
SSE: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
CHAT = "/v1/chat/completions"


class FakeReplicas:
    """Plays one script per request: a status and headers, then bytes, seconds or an exception."""

    def __init__(self, *scripts: list[Any]) -> None:
        self.scripts = list(scripts)
        self.requests: list[tuple[HttpRequest, SessionId | None]] = []
        self.aborted = 0
        self.is_ready = True

    @asynccontextmanager
    async def send(
        self, request: HttpRequest, turn: RouteRequest | None
    ) -> AsyncGenerator[Response, None]:
        self.requests.append((request, turn.session if turn else None))
        start, *rest = self.scripts.pop(0)
        if isinstance(start, Exception):
            raise start
        finished = False

        async def body() -> AsyncIterator[bytes]:
            nonlocal finished
            for step in rest:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, bytes):
                    yield step
                else:
                    await asyncio.sleep(step)
            finished = True

        try:
            yield Response(start, body())
        finally:
            self.aborted += not finished

    async def ready(self, timeout_s: float) -> bool:
        assert timeout_s == GatewayConfig().ready_timeout_s
        return self.is_ready


def _ok(*body: Any, headers: Headers = JSON, status: int = 200) -> list[Any]:
    return [ResponseStart(status, headers), *body]


class NoRouter:
    """A router that nobody is to ask."""

    status: RouterStatus | None = None
    settings_error: str | None = None

    async def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        raise AssertionError(method, args, timeout_s)


def _gateway(replicas: FakeReplicas, **config: Any) -> ASGIApp:
    turns = Turns(None, lambda: None)
    return build_gateway(replicas, turns, NoRouter(), NoRouter(), GatewayConfig(**config))


def _client(replicas: FakeReplicas, **config: Any) -> httpx.AsyncClient:
    app = _gateway(replicas, **config)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.mark.parametrize("path", PASSED_PATHS)
async def test_passes_everything_through(path: str) -> None:
    """Path, query, headers and body reach the replica; status, headers and bytes come back."""
    headers: Headers = (*JSON, (b"x-b", b"1"), (b"x-b", b"2"))
    replicas = FakeReplicas(_ok(b"\x00an", b"swer", headers=headers, status=299))
    async with _client(replicas) as client:
        response = await client.post(
            f"{path}?beta=true", content=b"\xffbody", headers={b"X-A": b"\xe9"}
        )
    request, session_id = replicas.requests[0]
    assert (request.method, request.path, request.query) == ("POST", path, b"beta=true")
    assert (b"x-a", b"\xe9") in request.headers
    assert request.body == b"\xffbody"
    assert session_id is None
    assert (response.status_code, response.content) == (299, b"\x00answer")
    assert response.headers.get_list("x-b") == ["1", "2"]


async def test_the_session_is_found_and_handed_on() -> None:
    """Serve and the engine are both told the session that the request names."""
    replicas = FakeReplicas(_ok(b"{}"))
    async with _client(replicas, session_headers=["x-team-run"]) as client:
        await client.post(CHAT, json={}, headers={"X-Team-Run": "r1", "X-Session-ID": "other"})
    request, session_id = replicas.requests[0]
    assert session_id == "r1"
    assert dict(request.headers)[b"x-session-id"] == b"r1"


def _billing(nonce: int) -> str:
    return f"x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli; cch={nonce:05x};"


@pytest.mark.parametrize(
    ("path", "with_system"),
    [
        ("/v1/messages", lambda line: {"system": [{"type": "text", "text": line}, {"text": "Y"}]}),
        ("/v1/messages/count_tokens", lambda line: {"system": f"{line}\nYou are"}),
        (CHAT, lambda line: {"messages": [{"role": "system", "content": f"{line}\nYou are"}]}),
        ("/v1/responses", lambda line: {"instructions": f"{line}\nYou are", "input": "hi"}),
        ("/v1/responses", lambda line: {"input": [{"role": "developer", "content": line + "\nY"}]}),
    ],
)
async def test_a_line_that_changes_every_turn_reaches_no_replica(
    path: str, with_system: Callable[[str], dict[str, Any]]
) -> None:
    """Turns that differ by a known volatile line only are equal to the replica, length and all."""
    replicas = FakeReplicas(_ok(b"{}"), _ok(b"{}"))
    async with _client(replicas) as client:
        for nonce in (1, 2**16):
            await client.post(path, json={"model": "m"} | with_system(_billing(nonce)))
    (first, _), (second, _) = replicas.requests
    assert first == second
    assert b"billing" not in first.body
    assert int(dict(first.headers)[b"content-length"]) == len(first.body)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Metric, float, dict[str, str]]]:
    """Return what the gateway counts from now on."""
    counted: list[tuple[Metric, float, dict[str, str]]] = []

    class FakeCounter:
        def __init__(self, metric: Metric) -> None:
            self.metric = metric

        def inc(self, value: float, tags: dict[str, str]) -> None:
            counted.append((self.metric, value, tags))

    monkeypatch.setattr("serve_app.passthrough.counter", FakeCounter)
    return counted


async def test_removed_lines_are_counted(counted: list[Any]) -> None:
    """The counter gets each request's removed lines, by pattern."""
    async with _client(FakeReplicas(_ok(b"{}")), volatile_lines=["now: .*"]) as client:
        await client.post(CHAT, json={"system": "now: 1\nnow: 2\nYou are"})
    assert counted == [(VOLATILE_LINES_REMOVED, 2, {"pattern": "now: .*"})]


async def test_errors_are_counted(counted: list[Any]) -> None:
    """Those of the gateway itself, by status; a replica's own errors are not."""
    broken = _ok(b"data: 1\n\n", ReplicaLost("ActorDiedError"), headers=SSE)
    replicas = FakeReplicas([ReplicasFull()], broken, _ok(b"{}", status=400), _ok(b"{}"))
    async with _client(replicas) as client:
        for _ in range(4):
            await client.post(CHAT, json={})
    assert counted == [(ERRORS, 1, {"status": "429"}), (ERRORS, 1, {"status": "503"})]


@pytest.fixture
def observed_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each time to the first byte that a gateway made after this notes."""
    observed_s: list[float] = []

    class FakeHistogram:
        def __init__(self, metric: Metric) -> None:
            assert metric is TTFT

        def observe(self, value: float) -> None:
            observed_s.append(value)

    monkeypatch.setattr("serve_app.passthrough.histogram", FakeHistogram)
    return observed_s


async def test_the_first_byte_of_streams_is_timed(observed_s: list[float]) -> None:
    """From the request's arrival on; answers that come whole, and errors, are no measure of it."""
    stream = _ok(0.02, b"data: 1\n\n", 0.2, b"data: 2\n\n", headers=SSE)
    replicas = FakeReplicas(stream, _ok(b"{}"), _ok(b"{}", status=400), _ok(b"x", headers=SSE))
    async with _client(replicas) as client:
        for _ in range(3):
            await client.post(CHAT, json={})
        await client.get("/v1/models")
    [ttft_s] = observed_s
    assert 0.02 <= ttft_s < 0.2


async def test_what_has_no_volatile_line_is_passed_byte_for_byte() -> None:
    """The user's words are left alone, and a setting says which lines are volatile."""
    theirs = json.dumps({"messages": [{"role": "user", "content": _billing(1)}]}, indent=2).encode()
    unknown = json.dumps({"system": _billing(1)}).encode()
    replicas = FakeReplicas(_ok(b"{}"), _ok(b"{}"))
    async with _client(replicas) as client:
        await client.post(CHAT, content=theirs)
    async with _client(replicas, volatile_lines=["now: .*"]) as client:
        await client.post("/v1/messages", content=unknown)
    assert [request.body for request, _ in replicas.requests] == [theirs, unknown]


async def test_connection_headers_stop_here() -> None:
    """Headers of one connection go no further, in either direction."""
    replicas = FakeReplicas(_ok(b"{}", headers=(*JSON, (b"transfer-encoding", b"chunked"))))
    async with _client(replicas) as client:
        response = await client.post(CHAT, json={}, headers={"Connection": "close", "TE": "gzip"})
    assert {b"connection", b"te"}.isdisjoint(dict(replicas.requests[0][0].headers))
    assert "transfer-encoding" not in response.headers


def _openai(response: httpx.Response) -> tuple[int, str]:
    error = response.json()["error"]
    assert error["code"] == response.status_code
    return response.status_code, error["message"]


def _anthropic(response: httpx.Response) -> tuple[int, str]:
    content = response.json()
    assert content["type"] == "error"
    return response.status_code, content["error"]["type"]


async def test_unknown_path() -> None:
    """An unknown path is a 404 in the form of the API it looks like."""
    async with _client(FakeReplicas()) as client:
        assert _openai(await client.get("/v1/nope")) == (404, "GET /v1/nope is not served here")
        assert _anthropic(await client.post("/v1/messages/x")) == (404, "not_found_error")


@pytest.mark.parametrize("declared", [True, False])
async def test_body_too_large(declared: bool) -> None:
    """A body over the limit is refused, whether it says its length or is sent in chunks."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * 2**18

    replicas = FakeReplicas()
    async with _client(replicas, max_body_mib=1) as client:
        content = b"x" * (2**20 + 1) if declared else chunks()
        assert _openai(await client.post(CHAT, content=content))[0] == 413
        content = b"x" * (2**20 + 1) if declared else chunks()
        response = await client.post("/v1/messages", content=content)
    assert _anthropic(response) == (413, "request_too_large")
    assert replicas.requests == []


async def test_body_at_the_limit_passes() -> None:
    """The limit itself is allowed."""
    replicas = FakeReplicas(_ok(b"{}"))
    async with _client(replicas, max_body_mib=1) as client:
        assert (await client.post(CHAT, content=b"x" * 2**20)).status_code == 200


async def test_a_body_that_stops_coming(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that stops in the middle of its request gets a 408, and its place is free."""
    monkeypatch.setattr(passthrough, "BODY_IDLE_S", 0.01)
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    await _call(_gateway(FakeReplicas()), receive, sent)
    assert sent[0]["status"] == 408


async def test_full() -> None:
    """When nothing is free the client is told to come back, in its API's form."""
    async with _client(FakeReplicas([ReplicasFull()], [ReplicasFull()]), retry_after_s=7) as client:
        response = await client.post(CHAT, json={})
        assert _openai(response)[0] == 429
        assert response.headers["retry-after"] == "7"
        assert _anthropic(await client.post("/v1/messages", json={})) == (429, "rate_limit_error")


async def test_turned_away() -> None:
    """A session that finds no place is told why and when to come back, in its API's form."""
    refused = [TurnedAway("9 sessions run")]
    async with _client(FakeReplicas(refused, refused), retry_after_s=7) as client:
        response = await client.post(CHAT, json={})
        assert _openai(response) == (429, "overloaded: 9 sessions run")
        assert response.headers["retry-after"] == "7"
        assert _anthropic(await client.post("/v1/messages", json={})) == (429, "rate_limit_error")


async def test_no_replicas() -> None:
    """A deployment that cannot run is a 503 that says so."""
    async with _client(FakeReplicas([NoReplicas("engine failed to deploy")])) as client:
        assert _openai(await client.post(CHAT, json={})) == (503, "engine failed to deploy")


async def test_timeout_before_the_answer() -> None:
    """A request that takes too long is aborted in the replica and answered 504."""
    replicas = FakeReplicas(_ok(5.0))
    async with _client(replicas, request_timeout_s=0.05) as client:
        assert _openai(await client.post(CHAT, json={})) == (504, "no whole answer in 0.05 s")
    assert replicas.aborted == 1


@pytest.mark.parametrize(
    ("path", "last_events"),
    [
        (CHAT, [b"data: {", b"data: [DONE]"]),
        ("/v1/messages", [b'event: error\ndata: {"type": "error"']),
        ("/v1/responses", [b"event: error\ndata: {"]),
    ],
)
async def test_a_stream_that_breaks_ends_with_an_error_event(
    path: str, last_events: list[bytes]
) -> None:
    """A begun stream tells its client what happened instead of just ending."""
    for break_off in (ReplicaLost("ActorDiedError"), 5.0):
        replicas = FakeReplicas(_ok(b"data: 1\n\n", break_off, headers=SSE))
        async with _client(replicas, request_timeout_s=0.05) as client:
            response = await client.post(path, json={})
        assert response.status_code == 200
        first, *last, empty = response.content.split(b"\n\n")
        assert (first, empty) == (b"data: 1", b"")
        assert len(last) == len(last_events)
        assert all(map(bytes.startswith, last, last_events))
        assert len(replicas.requests) == 1


async def test_a_lost_replica_costs_nothing_before_the_first_byte() -> None:
    """A request whose replica went away goes to another, also after its headers had come."""
    replicas = FakeReplicas(
        [ReplicaLost("ActorDiedError")],
        _ok(ReplicaLost("ActorUnavailableError"), headers=SSE),
        _ok(b"data: 1\n\n", headers=SSE),
    )
    async with _client(replicas) as client:
        response = await client.post(CHAT, content=b"same")
    assert response.content == b"data: 1\n\n"
    assert {request.body for request, _ in replicas.requests} == {b"same"}


async def test_a_request_whose_replica_was_lost_waits_for_room() -> None:
    """What was let in once is not turned away when the replicas that are left are full."""
    full = [ReplicasFull()]
    replicas = FakeReplicas([ReplicaLost("ActorDiedError")], full, full, full, _ok(b"{}"))
    async with _client(replicas) as client:
        assert (await client.post(CHAT, json={})).status_code == 200


async def test_a_request_whose_replica_was_lost_is_not_turned_away() -> None:
    """Not for a session too many: it was let in."""
    replicas = FakeReplicas([ReplicaLost("ActorDiedError")], [TurnedAway("no place")], _ok(b"{}"))
    async with _client(replicas) as client:
        assert (await client.post(CHAT, json={})).status_code == 200


async def test_attempts_end() -> None:
    """After the last attempt the client gets a 503."""
    lost = [ReplicaLost("ActorDiedError")]
    replicas = FakeReplicas(lost, lost, lost)
    async with _client(replicas, max_attempts=2) as client:
        response = await client.post(CHAT, json={})
    assert _openai(response)[0] == 503
    assert len(replicas.requests) == 2


async def test_an_unexpected_error_is_hidden() -> None:
    """A fault of ours is a plain 500: no traceback and no inner message."""
    async with _client(FakeReplicas([KeyError("secret")])) as client:
        response = await client.post(CHAT, json={})
    assert _openai(response) == (500, "internal error in the gateway")


VLLM_ERROR = {"error": {"message": "bad json", "type": "Bad Request", "param": None, "code": 400}}
ANTHROPIC_ERROR = {"type": "error", "error": {"type": "BadRequestError", "message": "no model"}}


def _anthropic_error(message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


@pytest.mark.parametrize(
    ("path", "sent", "received"),
    [
        (CHAT, VLLM_ERROR, VLLM_ERROR),
        (CHAT, {"object": "list"}, {"object": "list"}),
        ("/v1/messages", ANTHROPIC_ERROR, _anthropic_error("no model")),
        ("/v1/messages", VLLM_ERROR, _anthropic_error("bad json")),
        ("/v1/messages", {"error": "Unauthorized"}, _anthropic_error("Unauthorized")),
        ("/v1/messages/count_tokens", {"detail": "No such"}, _anthropic_error("No such")),
        (
            CHAT,
            {"detail": "No such"},
            {
                "error": {
                    "message": "No such",
                    "type": "Bad Request",
                    "param": None,
                    "code": 400,
                }
            },
        ),
    ],
)
async def test_errors_have_the_form_of_their_api(
    path: str, sent: dict[str, Any], received: dict[str, Any]
) -> None:
    """An error of vLLM's in its usual form passes as it is; others get the form of their API."""
    body = json.dumps(sent).encode()
    headers: Headers = (*JSON, (b"content-length", b"%d" % len(body)))
    async with _client(FakeReplicas(_ok(body, headers=headers, status=400))) as client:
        response = await client.post(path, json={})
    assert response.json() == received
    assert int(response.headers["content-length"]) == len(response.content)


async def test_health_and_readiness() -> None:
    """The gateway is alive by itself, and ready while a replica is."""
    replicas = FakeReplicas()
    async with _client(replicas) as client:
        assert (await client.get("/ready")).status_code == 200
        replicas.is_ready = False
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


async def _call(app: ASGIApp, receive: Callable[[], Any], sent: list[Message]) -> None:
    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "query_string": b"", "headers": []}
    await app(scope, receive, send)


async def test_a_client_that_hangs_up_aborts_its_request() -> None:
    """When the server cancels the exchange the replica's work ends too."""
    replicas = FakeReplicas(_ok(b"data: 1\n\n", 60.0, headers=SSE))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    exchange = asyncio.create_task(_call(_gateway(replicas), receive, sent))
    while len(sent) < 2:
        await asyncio.sleep(0.001)
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    assert replicas.aborted == 1


@pytest.mark.parametrize(
    ("body", "script", "times"),
    [
        ({"stream": True}, _ok(60.0, b"data: 1\n\n", headers=SSE), 1),
        ({"stream": True}, _ok(b"data: 1\n\n", 60.0, headers=SSE), 1),
        ({"stream": False}, _ok(60.0, b"{}"), 0),
        ({"stream": None}, _ok(60.0, b"{}"), 0),
        ({"stream": "yes"}, _ok(60.0, b"{}"), 0),
        ([], _ok(60.0, b"{}"), 0),
    ],
    ids=["before its answer", "in its answer", "whole", "null", "odd", "no turn"],
)
async def test_a_wait_for_nothing_is_timed(
    observed_s: list[float],
    body: Any,
    script: list[Any],
    times: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service whose streams do not begin is late, though its clients leave; each counts once."""
    monkeypatch.setattr("serve_app.passthrough.TTFT_SLO_S", 0.05)
    replicas = FakeReplicas(script)
    async with _client(replicas) as client:
        exchange = asyncio.create_task(client.post(CHAT, json=body))
        await asyncio.sleep(0.1)
        exchange.cancel()
        await asyncio.gather(exchange, return_exceptions=True)
    assert len(observed_s) == times
    assert replicas.aborted == 1


async def test_who_leaves_soon_says_nothing_of_the_service(observed_s: list[float]) -> None:
    """Its answer might have been in time."""
    async with _client(FakeReplicas(_ok(60.0, b"data: 1\n\n", headers=SSE))) as client:
        exchange = asyncio.create_task(client.post(CHAT, json={"stream": True}))
        await asyncio.sleep(0.1)
        exchange.cancel()
        await asyncio.gather(exchange, return_exceptions=True)
    assert not observed_s


async def test_a_late_answer_is_an_error_and_no_time(observed_s: list[float]) -> None:
    """The limit of time cancels it too, but its client is told."""
    stream = _ok(60.0, b"data: 1\n\n", headers=SSE)
    async with _client(FakeReplicas(stream), request_timeout_s=0.05) as client:
        response = await client.post(CHAT, json={"stream": True})
    assert response.status_code == 504
    assert not observed_s


async def test_a_client_that_hangs_up_while_sending() -> None:
    """A request that never becomes whole reaches no replica and answers nobody."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    await _call(_gateway(FakeReplicas()), receive, sent)
    assert sent == []

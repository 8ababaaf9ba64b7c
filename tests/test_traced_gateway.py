"""The spans of turns: which there are, what they say, and what they keep to themselves."""

import asyncio
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer, format_span_id
from starlette.types import ASGIApp, Message

from policies.prefix_break import Kind, PrefixBreak
from policies.types import ReplicaId, RequestId, Rule, SessionId
from serve_app.config import AppConfig, GatewayConfig
from serve_app.gateway import build_gateway
from serve_app.http_message import (
    REPLICA_HEADER,
    SESSION_HEADER,
    Headers,
    HttpRequest,
    ResponseStart,
)
from serve_app.kv_router import KVRouter
from serve_app.prompts import ReadPrompt
from serve_app.replicas import NoReplicas, ReplicaLost, ReplicasFull
from serve_app.route_request import Placement, RouteRequest, Why
from serve_app.routers import router_config
from serve_app.session_id import MAX_ID_CHARS, short_id
from serve_app.traced_gateway import TracedGateway, TracedReplicas, TracedTurns
from serve_app.traced_router import TracedKVRouter
from serve_app.turns import Turns
from tests.test_gateway import CHAT, FakeReplicas, NoRouter

ROOT = Path(__file__).parents[1]
TRACED = ("traced_gateway", "traced_router")
SSE: Headers = (
    (b"content-type", b"text/event-stream"),
    (REPLICA_HEADER, b"r1"),
    (SESSION_HEADER, b"caf%C3%A9"),
)
OK: list[Any] = [ResponseStart(200, SSE), b"data: 1\n\n", b"data: 2\n\n"]
LOST: list[Any] = [ReplicaLost("ActorDiedError")]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331"
SECRET = "Open sesame"


class FakePrompts:
    """Reads every prompt as ten tokens that break with the last prompt."""

    async def read(
        self, request: HttpRequest, session: SessionId | None, block_size: int | None
    ) -> ReadPrompt:
        assert (session, block_size) in (("s1", 4), (None, 4))
        broken = PrefixBreak(Kind.TOOLS_CHANGED, 3, None, None, 7)
        return ReadPrompt(request, np.array([1], np.uint64), 10, broken)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(exporter: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("test")


def _gateway(replicas: FakeReplicas, tracer: Tracer, **config: Any) -> ASGIApp:
    app = build_gateway(
        TracedReplicas(replicas, tracer),
        TracedTurns(Turns(FakePrompts(), lambda: 4), tracer),
        NoRouter(),
        NoRouter(),
        GatewayConfig(**config),
    )
    return TracedGateway(app, tracer)


def _client(replicas: FakeReplicas, tracer: Tracer, **config: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(_gateway(replicas, tracer, **config))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def _by_parent(spans: tuple[ReadableSpan, ...]) -> dict[str | None, list[str]]:
    """Return the names of each span's children, in the order of their beginnings."""
    names = {span.context.span_id: span.name for span in spans if span.context}
    found: dict[str | None, list[str]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        found[names.get(span.parent.span_id) if span.parent else None].append(span.name)
    return found


async def test_the_spans_of_a_turn(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """The prompt is read, and a replica tried, which is told the attempt."""
    replicas = FakeReplicas(OK)
    async with _client(replicas, tracer) as client:
        answer = await client.post(
            CHAT,
            json={"model": "tiny", "messages": []},
            headers={"X-Session-ID": "s1", "X-Request-ID": "q1", "User-Agent": "agent/1"},
        )
    assert answer.content == b"data: 1\n\ndata: 2\n\n"
    spans = exporter.get_finished_spans()
    whole = f"POST {CHAT}"
    assert _by_parent(spans) == {None: [whole], whole: ["read_prompt", "attempt"]}
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    said = {span.name: _attributes(span) for span in spans}
    assert said == {
        whole: {
            "http.request.method": "POST",
            "http.route": CHAT,
            "url.path": CHAT,
            "url.scheme": "http",
            "user_agent.original": "agent/1",
            "http.response.status_code": 200,
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny",
            "warmturn.request_id": "q1",
            "warmturn.session": "café",
            "warmturn.replica": "r1",
        },
        "read_prompt": {
            "gen_ai.usage.input_tokens": 10,
            "warmturn.prefix_break": "tools_changed",
            "warmturn.lost_tokens": 7,
        },
        "attempt": {
            "http.response.status_code": 200,
            "warmturn.replica": "r1",
            "warmturn.session": "café",
        },
    }
    attempt = next(span for span in spans if span.name == "attempt")
    assert attempt.context
    told = dict(replicas.requests[0][0].headers)[b"traceparent"].decode()
    assert told.split("-")[2] == format_span_id(attempt.context.span_id)


@pytest.mark.parametrize("is_sampled", [True, False])
async def test_the_trace_of_a_client_goes_on(
    is_sampled: bool, tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """Spans hang below the client's; what it does not sample is not recorded by anyone."""
    replicas = FakeReplicas(OK)
    flags = f"0{is_sampled:d}"
    async with _client(replicas, tracer) as client:
        given = {"traceparent": f"{PARENT}-{flags}", "tracestate": "vendor=1"}
        await client.post(CHAT, json={}, headers=given)
    told = dict(replicas.requests[0][0].headers)
    _, trace, _, told_flags = told[b"traceparent"].decode().split("-")
    assert (trace, told_flags, told[b"tracestate"]) == (TRACE, flags, b"vendor=1")
    spans = exporter.get_finished_spans()
    assert len(spans) == 3 * is_sampled
    roots = [one.parent for one in spans if one.parent and one.parent.is_remote]
    assert [f"{root.span_id:016x}" for root in roots] == ["b7ad6b7169203331"] * is_sampled


async def test_a_long_request_id_is_that_of_its_decision(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """By which the router keeps it: its hash."""
    long = "q" * (MAX_ID_CHARS + 1)
    async with _client(FakeReplicas(OK), tracer) as client:
        await client.post(CHAT, json={}, headers={"X-Request-ID": long})
    *_, turn = exporter.get_finished_spans()
    assert _attributes(turn)["warmturn.request_id"] == short_id(long)


async def test_each_attempt_is_a_span(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Those that lost their replica say so; the turn was answered, which is no error."""
    async with _client(FakeReplicas(LOST, [OK[0], *LOST], OK), tracer) as client:
        assert (await client.post(CHAT, json={})).status_code == 200
    *_, whole = spans = exporter.get_finished_spans()
    attempts = [span for span in spans if span.name == "attempt"]
    lost, none = (StatusCode.ERROR, "ReplicaLost"), (StatusCode.UNSET, None)
    assert [
        (span.status.status_code, _attributes(span).get("error.type")) for span in attempts
    ] == [lost, lost, none]
    assert whole.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("script", "attempt_error", "whole_error"),
    [
        ([ReplicasFull()], "ReplicasFull", None),
        ([NoReplicas("cannot run")], "NoReplicas", "503"),
        ([ResponseStart(400, SSE), b"{}"], "400", None),
        ([ResponseStart(500, SSE), b"{}"], "500", "500"),
        ([KeyError("x")], "KeyError", "500"),
        ([*OK[:2], *LOST], None, "ReplicaLost"),
    ],
)
async def test_failures(
    script: list[Any],
    attempt_error: str | None,
    whole_error: str | None,
    tracer: Tracer,
    exporter: InMemorySpanExporter,
) -> None:
    """Spans that failed name the kind of error; a client's own errors aren't the gateway's."""
    async with _client(FakeReplicas(script), tracer) as client:
        await client.post(CHAT, json={})
    errors = {span.name: _attributes(span).get("error.type") for span in _failed(exporter)}
    assert errors.get("attempt") == attempt_error
    assert errors.get(f"POST {CHAT}") == whole_error


def _failed(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    spans = exporter.get_finished_spans()
    return [span for span in spans if span.status.status_code is StatusCode.ERROR]


async def test_a_client_that_hangs_up(tracer: Tracer, exporter: InMemorySpanExporter) -> None:
    """Its spans end there and say that they were cut short; the replica's work ends too."""
    replicas = FakeReplicas([*OK, 60.0])
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": CHAT, "query_string": b"", "headers": []}

    async def call() -> None:
        await _gateway(replicas, tracer)(scope, receive, send)

    exchange = asyncio.create_task(call())
    while len(sent) < 3:
        await asyncio.sleep(0.001)
    exchange.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange
    assert replicas.aborted == 1
    spans = exporter.get_finished_spans()
    cut = [span.name for span in spans if _attributes(span).get("warmturn.cancelled")]
    assert cut == [f"POST {CHAT}"]


async def test_a_client_that_leaves_before_its_answer(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """The gateway just stops then; the span says why it has no status."""

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pytest.fail("nobody is there")

    scope = {"type": "http", "method": "POST", "path": CHAT, "query_string": b"", "headers": []}
    await _gateway(FakeReplicas(OK), tracer)(scope, receive, send)
    [turn] = exporter.get_finished_spans()
    assert _attributes(turn)["warmturn.cancelled"] is True


@pytest.mark.parametrize(
    "script",
    [
        OK,
        [ValueError(SECRET)],
        [*OK[:2], ValueError(SECRET)],
        [ResponseStart(400, SSE), SECRET.encode()],
        [ResponseStart(200, SSE), SECRET.encode()],
    ],
)
async def test_nothing_that_was_said_is_told(
    script: list[Any], tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """Neither the prompt nor the answer, nor an error that quotes them."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": SECRET}], "user": SECRET}
    async with _client(FakeReplicas(script), tracer) as client:
        await client.post(CHAT, json=body)
    spans = exporter.get_finished_spans()
    assert len(spans) >= 3
    assert SECRET not in "".join(span.to_json() for span in spans)


async def test_what_is_no_turn_is_not_traced(
    tracer: Tracer, exporter: InMemorySpanExporter
) -> None:
    """It passes as it came, a `traceparent` of the client's included."""
    replicas = FakeReplicas(OK)
    async with _client(replicas, tracer) as client:
        await client.get("/v1/models", headers={"traceparent": f"{PARENT}-01"})
        await client.get("/health")
    assert dict(replicas.requests[0][0].headers)[b"traceparent"] == f"{PARENT}-01".encode()
    assert exporter.get_finished_spans() == ()


async def test_readiness_is_the_replicas(tracer: Tracer) -> None:
    """Tracing changes nothing about it."""
    replicas = FakeReplicas()
    async with _client(replicas, tracer) as client:
        assert (await client.get("/ready")).status_code == 200
        replicas.is_ready = False
        assert (await client.get("/ready")).status_code == 503


class FakePending:
    """What Serve hands to a request router."""

    def __init__(self, *args: Any) -> None:
        self.args = args


WHY = Why(Rule.STAYED, "stays at r1", 0.25, 0.5)


@pytest.mark.parametrize("why", [WHY, None])
async def test_a_decision_is_explained(
    why: Why | None,
    tracer: Tracer,
    exporter: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Below the attempt: where the turn goes, by which rule, and what is expected of it."""
    turn = RouteRequest(RequestId("q1"), "q1", None)
    headers: Headers = ((b"traceparent", f"{PARENT}-01".encode()),)
    request = HttpRequest("POST", CHAT, b"", headers, b"{}")

    async def choose(_: KVRouter, pending: Any, *, is_retry: bool) -> str:
        assert (pending.args[0], is_retry) == (request, True)
        turn.placement = Placement(ReplicaId("r1"), SessionId("s1"), 32 if why else None, why)
        return "replica"

    monkeypatch.setattr(KVRouter, "_choose_replica_for_request", choose)
    router = TracedKVRouter.__new__(TracedKVRouter)
    router._tracer = tracer
    for pending in (FakePending(request, turn), FakePending(request, None)):
        chosen: Any = await router._choose_replica_for_request(pending, is_retry=True)  # type: ignore[arg-type]
        assert chosen == "replica"
    [route] = exporter.get_finished_spans()
    assert route.parent
    assert f"{route.parent.span_id:016x}" == "b7ad6b7169203331"
    explained = {
        "warmturn.expected_cached_tokens": 32,
        "warmturn.rule": "stayed",
        "warmturn.reason": "stays at r1",
        "warmturn.expected_ttft_s": 0.25,
        "warmturn.waited_s": 0.5,
    }
    where = {"warmturn.replica": "r1", "warmturn.session": "s1"}
    assert _attributes(route) == where | (explained if why else {})


def test_without_an_endpoint_the_router_is_the_plain_one() -> None:
    """With one it is told where spans go."""
    endpoint = "http://127.0.0.1:4317"
    plain = router_config(AppConfig(model="m"))
    traced = router_config(AppConfig(model="m", otlp_traces_endpoint=endpoint))
    assert plain.get_request_router_class() is KVRouter
    assert traced.get_request_router_class() is TracedKVRouter
    more = set(traced.request_router_kwargs.items()) - set(plain.request_router_kwargs.items())
    assert more == {("otlp_traces_endpoint", endpoint)}


def test_every_attribute_of_ours_is_explained() -> None:
    """In docs/operating.md, and no other is."""
    code = [ROOT / "serve_app" / f"{name}.py" for name in ("tracing", *TRACED)]
    named = set(re.findall(r'"(warmturn\.\w+)"', "".join(one.read_text() for one in code)))
    text = (ROOT / "docs/operating.md").read_text()
    section = text[text.index("## Following a turn") : text.index("## Logs")]
    assert set(re.findall(r"`(warmturn\.\w+)`", section)) == named

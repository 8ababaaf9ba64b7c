"""OpenTelemetry in one process: names, headers, and receivers that do not answer."""

import socket
import time
from collections.abc import Iterator

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, get_current_span

from serve_app import tracing
from serve_app.http_message import Headers
from serve_app.tracing import (
    CANCELLED,
    MAX_CHARS,
    carried,
    carrying,
    close,
    provider,
    set_defaults,
    span,
)
from tests.otlp_receiver import otlp_receiver

SERVICE, PROTOCOL = "OTEL_SERVICE_NAME", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
LIMIT = "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"
EXPORT_TIMEOUT_S = 10.0
"""How long one batch of 512 spans is tried."""

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test's process gets is gone afterwards."""
    for name in (SERVICE, LIMIT):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def silent() -> Iterator[str]:
    """The endpoint of a receiver that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"


def test_spans_arrive() -> None:
    """Also those that have just ended when the process does; the endpoint has one tracer."""
    with otlp_receiver() as receiver:
        with span(tracing.tracer(receiver.endpoint), "one"):
            pass
        with span(tracing.tracer(receiver.endpoint), "two"):
            pass
        close(provider(receiver.endpoint))
        assert [(one.service, one.name) for one in receiver.spans] == [
            ("warmturn-gateway", "one"),
            ("warmturn-gateway", "two"),
        ]


def test_what_clients_send_is_cut() -> None:
    """A text of megabytes would have a whole batch refused."""
    with otlp_receiver() as receiver:
        with span(tracing.tracer(receiver.endpoint), "one", attributes={"a": "b" * 6_000_000}):
            pass
        close(provider(receiver.endpoint))
        assert [one.attributes for one in receiver.spans] == [{"a": "b" * MAX_CHARS}]


def test_the_environment_says_where_texts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the standard's variable, by which vLLM's tracer goes as well."""
    monkeypatch.setenv(LIMIT, "3")
    set_defaults("ours")
    opened = TracerProvider().get_tracer("test").start_span("turn", attributes={"a": "bcde"})
    assert opened.attributes == {"a": "bcd"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("answers", ["silence", "refusal"])
def test_a_receiver_that_is_away_costs_nothing(
    protocol: str, answers: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No span of many more than are kept waits for it, nor does the end of the process."""
    monkeypatch.setenv(PROTOCOL, protocol)
    endpoint = silent if answers == "silence" else f"http://127.0.0.1:9/{protocol}"
    tracer = tracing.tracer(endpoint)
    began_s = time.perf_counter()
    for _ in range(5000):
        with span(tracer, "turn"):
            pass
    close(provider(endpoint), within_s=0.2)
    assert time.perf_counter() - began_s < EXPORT_TIMEOUT_S


def test_protocols_that_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused at the start, as vLLM refuses them."""
    monkeypatch.setenv(PROTOCOL, "http/json")
    with pytest.raises(ValueError, match="TRACES_PROTOCOL is http/json"):
        tracing.tracer("http://127.0.0.1:9/json")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "ours"),
        ({SERVICE: "theirs"}, "theirs"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=theirs"}, "theirs"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b"}, "ours"),
    ],
)
def test_the_environment_names_the_service(
    given: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either of the standard's ways; without them it has our name."""
    for key, value in given.items():
        monkeypatch.setenv(key, value)
    set_defaults("ours")
    assert TracerProvider().resource.attributes["service.name"] == name


def test_headers_carry_a_span() -> None:
    """In place of the one that they carried, and without touching any other."""
    headers: Headers = ((b"a", b"1"), (b"traceparent", PARENT), (b"tracestate", b"x=y"))
    assert get_current_span(carried(headers)).get_span_context().span_id == 0xB7AD6B7169203331
    assert get_current_span(carried(((b"traceparent", b"\xff"),))).get_span_context().span_id == 0
    mine = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)))
    assert carrying(headers, mine) == (
        (b"a", b"1"),
        (b"traceparent", b"00-%032x-%016x-01" % (1, 2)),
    )


def test_what_vendors_add_may_come_in_lines() -> None:
    """All of them count, in their order; of two parents none does."""
    parent, two = (b"traceparent", PARENT), ((b"tracestate", b"x=1,y=2"), (b"tracestate", b"z=3"))
    context = get_current_span(carried((two[0], parent, two[1]))).get_span_context()
    assert list(context.trace_state.items()) == [("x", "1"), ("y", "2"), ("z", "3")]
    assert get_current_span(carried((parent, parent))).get_span_context().span_id == 0


def test_a_cancelled_span_is_no_error() -> None:
    """But it says so."""
    opened = TracerProvider().get_tracer("test").start_span("turn", Context())
    tracing.fail(opened, GeneratorExit())
    assert opened.status.is_unset  # type: ignore[attr-defined]
    assert opened.attributes == {CANCELLED: True}  # type: ignore[attr-defined]

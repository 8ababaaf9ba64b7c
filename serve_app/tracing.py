"""OpenTelemetry in one process: its tracer, the spans' way through headers, and its end.

What OTEL_* environment variables say of sampling, batches, headers, lengths and names holds here as
it does in vLLM, which has a tracer of its own in each replica.
"""

import atexit
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import (
    OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
    OTEL_RESOURCE_ATTRIBUTES,
    OTEL_SERVICE_NAME,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from serve_app.http_message import Headers
from serve_app.session_id import MAX_ID_CHARS

GATEWAY_SERVICE = "warmturn-gateway"
ENGINE_SERVICE = "warmturn-engine"
MAX_CHARS = MAX_ID_CHARS
"""Where longer texts are cut; ids never are. Clients choose some, as the name of a model, and
receivers over gRPC usually refuse a batch of spans that has more than 4 MiB."""

FLUSH_S = 2.0
"""How long the end of a process may wait for its last spans to be sent."""

CANCELLED = "warmturn.cancelled"
"""Attribute of a span that was cut short: its client hung up, or its time was over."""

_w3c = TraceContextTextMapPropagator()


@cache
def provider(endpoint: str) -> TracerProvider:
    """Return this process's provider for an endpoint; it sends spans there on its own thread.

    What cannot be sent is dropped: some seconds after it was tried, or when 2,048 spans wait.
    It is not the global one, by which vLLM would also tell of what it does in a gateway.
    """
    set_defaults(GATEWAY_SERVICE)
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(_exporter(endpoint)))
    atexit.register(close, made)
    return made


def tracer(endpoint: str) -> Tracer:
    """Return this process's tracer for an endpoint."""
    return provider(endpoint).get_tracer("warmturn")


def set_defaults(service: str) -> None:
    """Let this process's spans, and vLLM's, carry the name and short texts alone.

    What the environment says of either goes first.
    """
    if "service.name=" not in os.environ.get(OTEL_RESOURCE_ATTRIBUTES, ""):
        os.environ.setdefault(OTEL_SERVICE_NAME, service)
    os.environ.setdefault(OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT, str(MAX_CHARS))


def close(made: trace.TracerProvider, within_s: float = FLUSH_S) -> None:
    """Send what is left, as far as that is possible in time, and nothing from then on."""
    if isinstance(made, TracerProvider):
        # Its own shutdown takes up to 30 s where nobody answers.
        ending = threading.Thread(target=made.shutdown, daemon=True)
        ending.start()
        ending.join(within_s)


@contextmanager
def span(
    tracer: Tracer,
    name: str,
    context: Context | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Iterator[Span]:
    """Measure what is done inside, below the current span or that of `context`."""
    opened = tracer.start_span(name, context, kind, attributes)
    try:
        yield opened
    except BaseException as error:
        fail(opened, error)
        raise
    finally:
        opened.end()


def known(attributes: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Return those that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def fail(span: Span, error: BaseException) -> None:
    """Note how it ended, by the kind of error alone: what errors say may quote prompts."""
    if isinstance(error, Exception):
        span.set_attribute(ERROR_TYPE, type(error).__name__)
        span.set_status(StatusCode.ERROR)
    else:
        span.set_attribute(CANCELLED, True)


def carried(headers: Headers) -> Context:
    """Return the context of the span that sent a request; an empty one if none did."""
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in headers:
        values[name.decode("latin-1")].append(value.decode("latin-1"))
    # `tracestate` may come in several lines; two lines of `traceparent` are none.
    return _w3c.extract({name: ",".join(lines) for name, lines in values.items()})


def carrying(headers: Headers, span: Span) -> Headers:
    """Return a request's headers as sent by this span."""
    carrier: dict[str, str] = {}
    _w3c.inject(carrier, trace.set_span_in_context(span, Context()))
    ours = [(name.encode(), value.encode()) for name, value in carrier.items()]
    return (*(pair for pair in headers if pair[0].decode("latin-1") not in _w3c.fields), *ours)


def _exporter(endpoint: str) -> SpanExporter:
    """Return what sends spans, by the protocol that the environment names, as vLLM chooses.

    Raises:
        ValueError: there is no such protocol.
    """
    protocol = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_PROTOCOL, "grpc")
    # Each takes a while to import.
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc(endpoint)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        return Http(endpoint)
    raise ValueError(f"{OTEL_EXPORTER_OTLP_TRACES_PROTOCOL} is {protocol}: no such protocol")

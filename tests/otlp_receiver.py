"""Takes OpenTelemetry spans as a collector does, over gRPC, and keeps them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


@dataclass(frozen=True, slots=True)
class Span:
    """A span as it came; ids are in hexadecimal, `parent` is empty where it has none."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]


class OtlpReceiver(TraceServiceServicer):
    """The service that exporters call. `endpoint` is what they are told."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.spans: list[Span] = []

    def Export(  # noqa: N802  # gRPC's name
        self, request: ExportTraceServiceRequest, context: Any
    ) -> ExportTraceServiceResponse:
        """Take a batch of spans."""
        assert context.is_active()
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        service,
                        one.name,
                        one.trace_id.hex(),
                        one.span_id.hex(),
                        one.parent_span_id.hex(),
                        one.start_time_unix_nano,
                        one.end_time_unix_nano,
                        _attributes(one.attributes),
                    )
                    for one in scope.spans
                ]
        return ExportTraceServiceResponse()

    def trace(self, trace: str) -> dict[str, Span]:
        """Return the spans of a trace by name, the last one where several have one name."""
        return {one.name: one for one in list(self.spans) if one.trace == trace}


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Listen on a free port of this machine."""
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    receiver = OtlpReceiver(f"http://127.0.0.1:{port}")
    add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None)


def _attributes(pairs: Any) -> dict[str, Any]:
    """Return attributes whose values are texts, numbers or truth values."""
    values = ((pair.key, pair.value, pair.value.WhichOneof("value")) for pair in pairs)
    return {key: getattr(value, kind) for key, value, kind in values}

"""The gateway's request router with a span around each choice of a replica."""

from typing import Any

from opentelemetry.util.types import AttributeValue
from ray.serve.request_router import PendingRequest, RunningReplica

from serve_app.http_message import HttpRequest
from serve_app.kv_router import KVRouter
from serve_app.route_request import Placement, RouteRequest
from serve_app.traced_gateway import REPLICA, SESSION
from serve_app.tracing import carried, known, span, tracer


class TracedKVRouter(KVRouter):
    """KVRouter, whose choices are spans below the attempt that the request's headers name."""

    def initialize_state(self, **kwargs: Any) -> None:
        """Take `otlp_traces_endpoint` besides; Serve calls this once."""
        self._tracer = tracer(kwargs.pop("otlp_traces_endpoint"))
        super().initialize_state(**kwargs)

    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        """Return the replica that a request goes to, as KVRouter does."""
        match pending_request.args:
            case HttpRequest() as request, RouteRequest() as turn:
                with span(self._tracer, "route", carried(request.headers)) as route:
                    replica = await super()._choose_replica_for_request(
                        pending_request, is_retry=is_retry
                    )
                    if turn.placement:
                        route.set_attributes(placed(turn.placement))
                    return replica
        return await super()._choose_replica_for_request(pending_request, is_retry=is_retry)


def placed(placement: Placement) -> dict[str, AttributeValue]:
    """Return where a turn goes and why; where the router was silent, only where."""
    why = placement.why
    return known(
        {
            REPLICA: placement.replica,
            SESSION: placement.session,
            "warmturn.expected_cached_tokens": placement.expected_cached_tokens,
            "warmturn.rule": why.rule.value if why else None,
            "warmturn.reason": why.reason if why else None,
            "warmturn.expected_ttft_s": why.expected_ttft_s if why else None,
            "warmturn.waited_s": why.waited_s if why else None,
        }
    )

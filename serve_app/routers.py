"""The request routers to choose from, and how Serve is told of each."""

from typing import Any

from ray.serve.config import RequestRouterConfig

from serve_app.config import AppConfig, RouterName

CLASSES = {
    RouterName.WARMTURN: "serve_app.kv_router:KVRouter",
    RouterName.POWER_OF_TWO: "ray.serve._private.request_router:PowerOfTwoChoicesRequestRouter",
    RouterName.ROUND_ROBIN: "ray.serve.experimental.round_robin_router:RoundRobinRouter",
    RouterName.CONSISTENT_HASH: (
        "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
    ),
    RouterName.PREFIX_AFFINITY: "serve_app.prefix_affinity:PrefixAffinityRouter",
}


def router_config(config: AppConfig) -> RequestRouterConfig:
    """Return Serve's configuration of the router that was chosen."""
    router: Any = CLASSES[config.router]
    kwargs: dict[str, Any] = {}
    if config.router is RouterName.WARMTURN:
        kwargs["router_timeout_s"] = config.gateway.router_timeout_s
        if config.otlp_traces_endpoint is not None:
            router = "serve_app.traced_router:TracedKVRouter"
            kwargs["otlp_traces_endpoint"] = config.otlp_traces_endpoint
    return RequestRouterConfig(request_router_class=router, request_router_kwargs=kwargs)

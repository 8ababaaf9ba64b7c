"""The composition root: serve.yaml's args -> the Serve application."""

from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from serve_app.config import AppConfig, GatewayConfig
from serve_app.engine import Engine
from serve_app.gateway import build_gateway
from serve_app.replicas import Replicas

ENGINE_START_ATTEMPTS = 3
"""Failures to start that Serve bears in a new deployment, per replica, before it gives up."""


class Gateway:
    """The ingress: holds nothing but a handle to the replicas."""

    def __init__(self, engines: DeploymentHandle[Any], config: GatewayConfig) -> None:
        self._app = build_gateway(Replicas(engines), config)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Give Serve the application, once this object exists."""
        return self._app


def build(config: AppConfig) -> Application:
    """Build the application; replicas, placement and queues are options of its deployments.

    Raises:
        EngineArgsError: vLLM does not accept the engine settings.
    """
    from serve_app import engine_args

    engine_args.parse(config.engine_settings())
    engine = serve.deployment(name="engine", max_constructor_retry_count=ENGINE_START_ATTEMPTS)
    gateway = serve.deployment(name="gateway")
    engines = engine(Engine).bind(config)
    return gateway(serve.ingress()(Gateway)).bind(engines, config.gateway)

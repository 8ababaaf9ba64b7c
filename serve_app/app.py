"""The composition root: serve.yaml's args -> the Serve application."""

import asyncio
import logging
import time
from typing import Any

import ray
from pydantic import ValidationError
from ray import serve
from ray.serve import Application
from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from serve_app import serve_file, tracing
from serve_app.config import AppConfig, RouterName, UserConfig
from serve_app.engine import Engine
from serve_app.gateway import build_gateway
from serve_app.log_handlers import kept_targets
from serve_app.replicas import Replicas
from serve_app.route_request import GatewaySeat
from serve_app.router_client import RouterClient
from serve_app.router_watch import RouterWatch
from serve_app.routers import router_config
from serve_app.traced_gateway import TracedGateway, TracedReplicas, TracedTurns
from serve_app.turns import Turns
from serve_app.vllm_platform import assume_cpu

logger = logging.getLogger("ray.serve")

ENGINE_START_ATTEMPTS = 3
"""Failures to start that Serve bears in a new deployment, per replica, before it gives up."""


class Gateway:
    """The ingress: reads prompts, and holds a handle to the replicas and one to the router."""

    async def __init__(self, engines: DeploymentHandle[Any], config: AppConfig) -> None:  # type: ignore[misc]  # Serve awaits it
        self._endpoint = config.otlp_traces_endpoint
        prompts = None
        if config.router is RouterName.WARMTURN:
            with kept_targets("ray.serve"):  # vLLM configures logging as it is imported
                prompts = await asyncio.to_thread(_prompts, config)
        here = serve.get_replica_context()
        router = RouterClient(here.app_name)
        node = ray.get_runtime_context().get_node_id()
        seat = GatewaySeat(here.replica_id.unique_id, node, time.time())
        self._watch = RouterWatch(router, config.record, seat)
        self._watching = asyncio.create_task(self._watch.run())
        turns = Turns(prompts, lambda: self._watch.block_size, keep_sent=config.record_prompts)
        replicas = Replicas(engines, router)
        if self._endpoint is None:
            self._app: ASGIApp = build_gateway(replicas, turns, router, self._watch, config.gateway)
        else:
            tracer = tracing.tracer(self._endpoint)
            app = build_gateway(
                TracedReplicas(replicas, tracer),
                TracedTurns(turns, tracer),
                router,
                self._watch,
                config.gateway,
            )
            self._app = TracedGateway(app, tracer)

    def reconfigure(self, user_config: dict[str, Any] | None, rank: Any) -> None:
        """Take a new `user_config`, as Serve calls this at the start and whenever it changes.

        One that is refused changes nothing but what /warmturn/replicas says of it: if this raised,
        Serve would stop the gateway, and no new one could start. Serve calls what takes a `rank`
        also where there is no `user_config`.
        """
        del rank
        try:
            self._watch.tunables = UserConfig.model_validate(user_config or {}).routing
            self._watch.settings_error = None
        except ValidationError as error:
            self._watch.settings_error = "; ".join(serve_file.lines(error))
            logger.error("user_config is refused: %s", self._watch.settings_error)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Give Serve the application, once this object exists."""
        return self._app

    def __del__(self) -> None:
        """Leave no spans behind; Serve calls this when it stops a gateway in order."""
        if self._endpoint is not None:
            tracing.close(tracing.provider(self._endpoint))


def build(config: AppConfig) -> Application:
    """Build the application; replicas, placement and queues are options of its deployments.

    Raises:
        EngineArgsError: vLLM does not accept the engine settings, or no engine could have the
            shared tier with them.
    """
    assume_cpu()
    from serve_app import engine_args, kv_tiers

    kv_tiers.check(engine_args.parse(config.engine_settings()), config)
    engine = serve.deployment(
        name="engine",
        max_constructor_retry_count=ENGINE_START_ATTEMPTS,
        request_router_config=router_config(config),
    )
    gateway = serve.deployment(name="gateway")
    engines = engine(Engine).bind(config)
    return gateway(serve.ingress()(Gateway)).bind(engines, config)


def _prompts(config: AppConfig) -> Any:
    """Return what reads prompts as the engines will; it takes seconds and imports vLLM."""
    assume_cpu()
    from serve_app import engine_args
    from serve_app.prompts import Prompts
    from serve_app.render import PromptRenderer

    args = engine_args.parse(config.engine_settings())
    return Prompts(PromptRenderer(args), config.model, args.served_model_name)

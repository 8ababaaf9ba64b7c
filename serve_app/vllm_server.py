"""Starts one vLLM engine and vLLM's own HTTP application around it, in this process.

Importing this module imports vLLM, which takes many seconds.
"""

from types import SimpleNamespace
from typing import Any, Self

from fastapi import FastAPI
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.ray_wrappers import RayPrometheusStatLogger

from policies.types import ReplicaId
from serve_app import engine_args, kv_tiers
from serve_app.config import AppConfig
from serve_app.engine_load import EngineLoad
from serve_app.kv_event_stream import Endpoints
from serve_app.watched_llm import WatchedLLM


class VllmServer:
    """A running engine, its application, and what the engine says of its load."""

    def __init__(self, engine: WatchedLLM, app: FastAPI, load: EngineLoad) -> None:
        self.engine = engine
        self.app = app
        self.load = load

    @classmethod
    async def start(cls, config: AppConfig, replica: ReplicaId, kv_events: Endpoints) -> Self:
        """Start the engine, which will publish its KV events there."""
        args = engine_args.parse(config.engine_settings())
        engine_args.import_parser_plugins(args)
        args.kv_events_config = kv_events.config()
        shared_gib = kv_tiers.place_kv(args, config)
        load = EngineLoad(replica, config.kv_offload_gib * 2**30, shared_gib * 2**30)
        engine_settings = AsyncEngineArgs.from_cli_args(args)
        # The last one serves vLLM's own /metrics, which the one for Ray's agent would replace.
        loggers: list[Any] = [load.attach, RayPrometheusStatLogger, PrometheusStatLogger]
        engine = WatchedLLM.from_engine_args(engine_settings, stat_loggers=loggers)
        assert isinstance(engine, WatchedLLM)
        kv_tiers.check_workers(config, engine.vllm_config.parallel_config)
        tasks = await engine.get_supported_tasks()
        app = build_app(args, tasks, engine.model_config)
        await init_app_state(engine, app.state, args, tasks)
        # vLLM's error handlers set should_exit on the server they run in.
        app.state.server = SimpleNamespace(should_exit=False)
        app.state.lifespan = app.router.lifespan_context(app)  # it lives as long as the application
        await app.state.lifespan.__aenter__()
        return cls(engine, app, load)

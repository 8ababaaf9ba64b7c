"""The replica: one vLLM engine behind vLLM's own HTTP application."""

import argparse
import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import NoReturn

from ray import serve

from serve_app import asgi_client
from serve_app.config import AppConfig
from serve_app.http_message import REPLICA_HEADER, HttpRequest, ResponseStart
from serve_app.log_handlers import kept_targets

logger = logging.getLogger("ray.serve")

DEATH_CHECK_S = 0.25


class Engine:
    """A Serve replica; every argument of its engine comes from `AppConfig.engine`.

    When the engine dies its process ends too: requests that have not begun to answer go to
    another replica at once, and Serve starts a new one.
    """

    async def __init__(self, config: AppConfig) -> None:  # type: ignore[misc]  # Serve awaits it
        with kept_targets(logger.name):  # vLLM configures logging as it starts
            await self._start(config)
        self._replica_id = serve.get_replica_context().replica_id.unique_id.encode()
        self._end = asyncio.create_task(self._end_with_engine())

    async def _start(self, config: AppConfig) -> None:
        # vLLM takes seconds to import, and only replicas need it.
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state
        from vllm.entrypoints.launchers.app import build_app
        from vllm.v1.engine.async_llm import AsyncLLM

        from serve_app import engine_args

        args = engine_args.parse(config.engine_settings())
        engine_args.import_parser_plugins(args)
        _offload_kv(args, config.kv_offload_gib)
        self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(args))
        tasks = await self._engine.get_supported_tasks()
        self._app = build_app(args, tasks, self._engine.model_config)
        await init_app_state(self._engine, self._app.state, args, tasks)
        # vLLM's error handlers set should_exit on the server they run in.
        self._app.state.server = SimpleNamespace(should_exit=False)
        self._lifespan = self._app.router.lifespan_context(self._app)
        await self._lifespan.__aenter__()

    async def http(self, request: HttpRequest) -> AsyncGenerator[ResponseStart | bytes, None]:
        """Yield vLLM's ResponseStart, with the replica named, and then the body's pieces."""
        try:
            async for message in asgi_client.call(self._app, request):
                await self._hold_if_dead()
                if isinstance(message, ResponseStart):
                    named = (*message.headers, (REPLICA_HEADER, self._replica_id))
                    message = ResponseStart(message.status, named)
                yield message
        except Exception:
            await self._hold_if_dead()
            raise

    async def check_health(self) -> None:
        """Serve's health check, and the gateway's proof that this replica answers.

        Raises:
            EngineDeadError: the engine is gone.
        """
        await self._engine.check_health()

    async def _hold_if_dead(self) -> None:
        """Answer nothing more once the engine is dead; this process is about to end."""
        if self._engine.errored:
            await asyncio.shield(self._end)

    async def _end_with_engine(self) -> NoReturn:
        while not self._engine.errored:  # noqa: ASYNC110  # vLLM has no event for it
            await asyncio.sleep(DEATH_CHECK_S)
        logger.error("the engine died: this replica ends, Serve starts another")
        os._exit(1)


def _offload_kv(args: argparse.Namespace, gib: float) -> None:
    """Give the engine a CPU tier: vLLM's own on accelerators, ours on the CPU build."""
    if not gib:
        return
    from vllm.config import KVTransferConfig
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        args.kv_offloading_size = gib
        return
    args.kv_transfer_config = KVTransferConfig(
        kv_connector="OffloadingConnector",
        kv_role="kv_both",
        kv_connector_extra_config={
            "spec_name": "HostOffloadingSpec",
            "spec_module_path": "serve_app.host_offload",
            "cpu_bytes_to_use": int(gib * 2**30),
        },
    )

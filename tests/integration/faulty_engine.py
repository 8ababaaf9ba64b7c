"""An engine in the test's own process, over a shared tier whose faults the test switches on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM

from serve_app import engine_args
from serve_app.config import AppConfig
from serve_app.kv_tiers import place_kv
from tests.integration.conftest import SMALL_ENGINE
from tests.integration.faulty_tier import FAULT


def start(model: Path, root: Path) -> AsyncLLM:
    """Start an engine with a small primary cache, a CPU tier, and `root` below it."""
    shared = {"type": "fs", "path": root, "gib": 1}
    config = AppConfig.model_validate(
        {"model": str(model), "engine": SMALL_ENGINE, "kv_offload_gib": 0.25, "kv_shared": shared}
    )
    args = engine_args.parse(config.engine_settings())
    place_kv(args, config)
    (tier,) = args.kv_transfer_config.kv_connector_extra_config["secondary_tiers"]
    tier |= {"type": "FaultyTier", "module_path": "tests.integration.faulty_tier"}
    return AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(args))


@contextmanager
def fault(root: Path, kind: str) -> Iterator[None]:
    """Let the directory have a fault meanwhile."""
    path = root.with_name(FAULT)
    path.write_text(kind)
    try:
        yield
    finally:
        path.unlink()

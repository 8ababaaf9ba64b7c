"""Opening the shared tier's directory when an engine starts."""

import logging
import stat
from pathlib import Path

from serve_app.kv_directory import KvDirectory

logger = logging.getLogger(f"vllm.{__name__}")  # an engine's process shows only what is vLLM's


def open_directory(directory: KvDirectory, root: Path, max_bytes: int) -> None:
    """Open it, and log what it is; one that can't be used is logged, and has no block."""
    try:
        directory.open()
        mode = root.stat().st_mode
    except OSError as error:
        logger.error("the shared KV tier is off, its directory can't be made: %s", error)
        return
    logger.info("shared KV tier: %s, %.1f GiB for all", directory.path, max_bytes / 2**30)
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        logger.warning("shared KV tier: others can write to %s, and so change answers", root)

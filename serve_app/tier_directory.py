"""Opening the shared tier's directory when an engine starts."""

import logging
import os
import shutil
import stat
import threading
from pathlib import Path

from serve_app.kv_directory import KvDirectory

logger = logging.getLogger(f"vllm.{__name__}")  # an engine's process shows only what is vLLM's

OPEN_S = 5.0
"""How long an engine's start waits for the directory."""


def open_directory(directory: KvDirectory, root: Path, max_bytes: int) -> None:
    """Open it, and log what it is; until it's open, as one that can't be, it has no block.

    One in a file system that hangs is opened once that goes on, and the engine starts meanwhile.
    """
    opening = threading.Thread(
        target=_open, args=(directory, root, max_bytes), name="kv-shared-open", daemon=True
    )
    opening.start()
    opening.join(OPEN_S)
    if opening.is_alive():
        logger.error("the shared KV tier is off until its directory %s answers", root)


def _open(directory: KvDirectory, root: Path, max_bytes: int) -> None:
    try:
        directory.open()
        status = root.stat()
        disk_bytes = shutil.disk_usage(root).total
    except OSError as error:
        logger.error("the shared KV tier is off, its directory can't be made: %s", error)
        return
    logger.info("shared KV tier: %s, %.1f GiB for all", directory.path, max_bytes / 2**30)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid != os.geteuid():
        logger.warning("shared KV tier: others can write to %s, and so change answers", root)
    if disk_bytes < max_bytes:
        logger.warning(
            "shared KV tier: %s has %.1f GiB in all; once it's full, what is there stays, and"
            " nothing new is kept",
            root,
            disk_bytes / 2**30,
        )

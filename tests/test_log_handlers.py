"""Serve's log handlers and libraries that configure logging."""

import logging
import logging.config
from logging.handlers import MemoryHandler
from pathlib import Path

from serve_app.log_handlers import kept_targets


def test_a_buffered_log_goes_on_after_dict_config(tmp_path: Path) -> None:
    """What is logged after another library's dictConfig still reaches the file, once."""
    file = tmp_path / "replica.log"
    target = logging.FileHandler(file)
    buffered = MemoryHandler(1, target=target)
    logger = logging.getLogger("test-serve")
    logger.addHandler(buffered)
    try:
        logger.error("before")
        with kept_targets("test-serve"):
            logging.config.dictConfig({"version": 1, "disable_existing_loggers": False})
        assert buffered.target is target
        logger.error("after")
    finally:
        logger.removeHandler(buffered)
        buffered.close()
        target.close()
    assert file.read_text().split() == ["before", "after"]

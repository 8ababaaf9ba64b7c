"""Keeps Serve's log handlers in use while another library configures logging."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler


@contextmanager
def kept_targets(logger_name: str) -> Iterator[None]:
    """Give the logger's memory handlers their targets back on the way out.

    `logging.config.dictConfig`, which vLLM calls as it starts, closes all handlers there
    are, and a closed MemoryHandler has lost its target: Serve's replica would log nothing more, and
    a restarted Serve controller, which asks for the log's path, would take it for broken.
    """
    handlers = logging.getLogger(logger_name).handlers
    targets = [(one, one.target) for one in handlers if isinstance(one, MemoryHandler)]
    try:
        yield
    finally:
        for handler, target in targets:
            handler.setTarget(target)

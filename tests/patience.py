"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable


def wait_until(happened: Callable[[], bool], within_s: float = 20.0) -> None:
    """Ask again and again; fail where it did not happen in time."""
    until_s = time.monotonic() + within_s
    while not happened():
        assert time.monotonic() < until_s
        time.sleep(0.01)

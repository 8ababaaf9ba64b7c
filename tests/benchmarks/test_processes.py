"""Whose processor time it is, told from real processes."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest

from benchmarks.processes import SHARED, Processes
from tests.patience import wait_until

pytestmark = pytest.mark.slow

BUSY = "while True: pass"


@contextmanager
def _busy(title: str) -> Iterator[int]:
    """Run a process of that title, which uses all the time that it gets."""
    process = subprocess.Popen([title, "-c", BUSY], executable=sys.executable)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_each_service_is_charged_for_its_own_processes() -> None:
    """Replicas by their titles, a router by its number; the rest is shared; engines don't count."""
    with ExitStack() as running:
        for title in ("ray::ServeReplica:a:gateway", "VLLM::Worker"):
            running.enter_context(_busy(title))
        receiver = running.enter_context(_busy("receiver"))
        router = running.enter_context(_busy("ray::RouterActor"))
        processes = Processes({router: "b", 1: "a"}, but={receiver})
        before_s = processes.used_s()
        wait_until(lambda: min(_of(processes, before_s, "a", "b")) > 0.5)
        [shared_s] = _of(processes, before_s, SHARED)
        assert shared_s < 0.2  # nothing of the engine or the receiver, which are as busy
        running.enter_context(_busy("ray::ProxyActor"))
        wait_until(lambda: min(_of(processes, before_s, SHARED)) > 0.5)
        assert set(processes.used_s()) == {"a", "b", SHARED}


def _of(processes: Processes, before_s: Mapping[str, float], *users: str) -> list[float]:
    """Return the seconds used by each of these since then."""
    used_s = processes.since(before_s)
    return [used_s.get(user, 0.0) for user in users]

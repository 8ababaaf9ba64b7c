"""What an autoscaler gets to see of a fleet's traffic."""

from random import Random

import numpy as np
import pytest

from policies.autoscale_settings import AutoscaleSettings
from policies.observer import LOAD_WINDOW_S, Observer
from policies.router import Router
from policies.tunables import Tunables
from policies.types import ReplicaId
from policies.victims import Seat
from tests.policies.makers import make_request, make_state

DAY, MINUTE = AutoscaleSettings(), AutoscaleSettings(window_s=60.0, usual_s=20.0)
SEATS = (Seat(ReplicaId("r1"), "n1"), Seat(ReplicaId("r2"), "n2"))
STATES = (make_state("r1", running=1), make_state("r2", prefill_tokens_per_s=3000.0))


def prompt(name: int, blocks: int = 100) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return hashes of a prompt's blocks."""
    return np.random.default_rng(name).integers(0, 1 << 63, blocks, np.uint64)


def test_a_new_fleet() -> None:
    """Nothing was asked yet, and what replicas hold is known."""
    seen = Observer(10).observe(
        SEATS, STATES, cpu_tokens=0, shared_tokens=7, settings=DAY, now_s=5.0
    )
    assert (seen.gpu_tokens, seen.cache_tokens, seen.shared_tokens) == (10_000, 10_000, 7)
    assert seen.busy == {ReplicaId("r1")}
    assert seen.prefill_tokens_per_s == 2000.0
    assert (seen.prompt_tokens_per_s, seen.load.requests) == (0, 0)
    assert seen.curve.best_ratio == 0


def test_cpu_memory_holds_what_gpu_memory_does() -> None:
    """So the larger one counts."""
    seen = Observer(10).observe(SEATS, STATES, 50_000, 0, DAY, 5.0)
    assert seen.cache_tokens == 50_000


def test_prompts_and_what_is_in_flight() -> None:
    """Tokens per second of the last minute, means of what runs, and what was asked again."""
    observer, router = Observer(10), Router(Tunables())
    for second in range(int(LOAD_WINDOW_S)):
        observer.arrived(prompt(second % 2), 1000, float(second))
        observer.look(STATES, router, float(second))
    seen = observer.observe(SEATS, STATES, 0, 0, DAY, LOAD_WINDOW_S)
    assert seen.prompt_tokens_per_s == pytest.approx(1000, rel=0.1)
    assert seen.curve.best_ratio == pytest.approx(58 / 60, abs=0.02)
    router.decide(make_request(), STATES, LOAD_WINDOW_S, Random(0))
    observer.look(STATES, router, LOAD_WINDOW_S)
    busy = observer.observe(SEATS, STATES, 0, 0, DAY, LOAD_WINDOW_S)
    # One ran all the time, as its replica says.
    assert busy.load.requests == pytest.approx(1 + 1 / LOAD_WINDOW_S)


def test_another_window() -> None:
    """Reuse is counted anew, of as long a time as is asked for."""
    observer = Observer(10)
    for second in (0.0, 1.0):
        observer.arrived(prompt(1), 1000, second)
    assert observer.observe(SEATS, STATES, 0, 0, DAY, 2.0).curve.best_ratio == 0.5
    assert observer.observe(SEATS, STATES, 0, 0, MINUTE, 2.0).curve.best_ratio == 0
    for second in (3.0, 4.0, 5.0, 64.0):
        observer.arrived(prompt(1), 1000, second)
    curve = observer.observe(SEATS, STATES, 0, 0, MINUTE, 64.0).curve
    assert curve.prompt_tokens < 4000

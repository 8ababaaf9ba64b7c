"""Sampling a reuse curve's blocks costs little truth and saves most of the memory."""

from itertools import islice

import numpy as np
import pytest

from benchmarks.generated_sessions import generate_sessions
from benchmarks.reuse_error import measure, replay
from benchmarks.simulator.traffic import ClosedLoop
from benchmarks.trace_options import share_prefix

pytestmark = pytest.mark.slow


def test_error_of_a_sample() -> None:
    """At most 2 points at any size of memory, in a tenth of the bytes or less."""
    sessions = share_prefix(generate_sessions(40, 1))
    turns = list(islice(replay(ClosedLoop(sessions, 30, seed=1)), 600))
    sizes = np.geomspace(1e5, 1e8, 40)
    exact, exact_bytes = measure(turns, sessions[0].block_size, 1 << 40, sizes)
    found, used_bytes = measure(turns, sessions[0].block_size, 4096, sizes)
    assert exact[-1] > 0.5
    assert np.max(np.abs(found - exact)) < 0.02
    assert used_bytes < exact_bytes / 10

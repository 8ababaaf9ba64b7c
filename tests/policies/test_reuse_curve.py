"""Hit ratios by size of memory, against a list of all blocks in the order of their last use."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from policies.reuse_curve import ReuseSampler

BLOCK_SIZE = 10
prompts = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), min_size=1, max_size=40)
"""Which of five sessions goes on, and how many blocks its prompt has."""


def _hashes(session: int, blocks: int) -> NDArray[np.uint64]:
    """Return a prompt's blocks: equal beginnings of a session's prompts are equal."""
    rng = np.random.default_rng(session)
    return rng.integers(0, 1 << 64, 5000, np.uint64, endpoint=False)[:blocks]


def _distances(history: Sequence[tuple[int, int]]) -> list[int]:
    """Return how many blocks each reused block needs a memory to have."""
    stack: list[int] = []
    sizes = []
    for session, blocks in history:
        hashes = _hashes(session, blocks).tolist()
        sizes += [stack.index(block) + 1 for block in hashes if block in stack]
        stack = hashes + [block for block in stack if block not in hashes]
    return sizes


@given(history=prompts, capacity=st.integers(1, 400))
def test_exact(history: list[tuple[int, int]], capacity: int) -> None:
    """Without sampling the curve is exact but for the width of its steps."""
    sampler = ReuseSampler(BLOCK_SIZE, window_s=1e6)
    for at_s, (session, blocks) in enumerate(history):
        sampler.add(_hashes(session, blocks), blocks * BLOCK_SIZE, float(at_s))
    curve = sampler.curve(float(len(history)))
    sizes = np.array(_distances(history))
    total = sum(blocks for _, blocks in history)
    assert curve.best_ratio == pytest.approx(len(sizes) / total)
    found = curve.hit_ratio(capacity * BLOCK_SIZE) * total
    least, most = np.sum(sizes < capacity * 0.95), np.sum(sizes < capacity * 1.05)
    assert least - 1e-6 <= found <= most + 1e-6


@given(history=prompts)
def test_prefixes(history: list[tuple[int, int]]) -> None:
    """A block needs no larger memory than the one after it, so hits have no gaps before them."""
    for end in range(1, len(history) + 1):
        sizes = _distances(history[:end])[len(_distances(history[: end - 1])) :]
        assert sizes == sorted(sizes)


@given(history=prompts, ratio=st.floats(0, 1))
def test_capacity(history: list[tuple[int, int]], ratio: float) -> None:
    """The curve never falls, and the capacity for a ratio has it, where any has."""
    sampler = ReuseSampler(BLOCK_SIZE, window_s=1e6, max_samples=64)
    for at_s, (session, blocks) in enumerate(history):
        sampler.add(_hashes(session, blocks), blocks * BLOCK_SIZE, float(at_s))
    curve = sampler.curve(float(len(history)))
    ratios = [curve.hit_ratio(size) for size in curve.sizes_tokens]
    assert ratios == sorted(ratios)
    assert 0 <= ratios[0] <= ratios[-1] <= 1
    capacity = curve.capacity_tokens(ratio)
    if capacity is None:
        assert curve.best_ratio < ratio
    else:
        assert curve.hit_ratio(capacity) >= ratio - 1e-9


def test_sampled() -> None:
    """With one block in forty the error is under 2 points at any size."""
    rng = np.random.default_rng(0)
    exact, sampled = (ReuseSampler(BLOCK_SIZE, 1e6, max_samples) for max_samples in (1 << 40, 2048))
    lengths = rng.integers(50, 500, 200)
    for at_s in range(3000):
        session = int(rng.zipf(1.3)) % 200
        lengths[session] = min(5000, lengths[session] + rng.integers(1, 20))
        hashes = _hashes(session, int(lengths[session]))
        for sampler in (exact, sampled):
            sampler.add(hashes, len(hashes) * BLOCK_SIZE, float(at_s))
    assert len(sampled) <= 2048 < len(exact) / 20
    truth, found = exact.curve(3000.0), sampled.curve(3000.0)
    for size in np.geomspace(1000, 10_000_000, 50):
        assert found.hit_ratio(size) == pytest.approx(truth.hit_ratio(size), abs=0.02)


def test_window() -> None:
    """What left the window counts no more, and what was used before it is first seen."""
    sampler = ReuseSampler(BLOCK_SIZE, window_s=100.0)
    hashes = _hashes(0, 10)
    sampler.add(hashes, 100, 0.0)
    sampler.add(hashes, 100, 50.0)
    assert sampler.curve(50.0).best_ratio == 0.5
    assert sampler.curve(120.0).best_ratio == 1.0
    sampler.add(hashes, 100, 400.0)
    assert len(sampler) == 10
    assert sampler.curve(400.0).best_ratio == 0.0


def test_nothing_yet() -> None:
    """Before the first prompt nothing hits."""
    curve = ReuseSampler(BLOCK_SIZE, 100.0).curve(0.0)
    assert (curve.best_ratio, curve.hit_ratio(1e9), curve.capacity_tokens(0.5)) == (0, 0, None)

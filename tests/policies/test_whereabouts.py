"""Where a prompt's KV lies."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.kv_events import EventBatch
from policies.prefix_index import PrefixIndex
from policies.types import ReplicaId, Tier
from policies.whereabouts import MAX_SAMPLES, sample, whereabouts
from tests.policies.makers import make_hashes, make_stored

R1, R2 = ReplicaId("r1"), ReplicaId("r2")


@given(st.integers(0, 5000))
def test_samples_are_evenly_spread(blocks: int) -> None:
    """Stretches differ by one block at most, and the last one ends with the prompt."""
    taken = sample(np.arange(blocks, dtype=np.uint64))
    assert taken.blocks == blocks
    assert len(taken.hashes) == min(blocks, MAX_SAMPLES)
    lengths = np.diff(taken.hashes.astype(np.int64), prepend=-1)
    assert sum(lengths) == blocks
    assert not blocks or max(lengths) - min(lengths) <= 1


def test_each_memory_says_which_stretches_it_has() -> None:
    """A replica's GPU and CPU memory and the shared tier each have their own part of a prompt."""
    index = PrefixIndex(expect_s=10, remember_s=10, max_remembered=10, max_shared=10)
    in_r1 = [
        make_stored(1, 2, 3, names=[11, 12, 13]),
        make_stored(1, 2, names=[11, 12], tier=Tier.CPU),
        make_stored(1, names=[11], tier=Tier.SHARED),
    ]
    index.apply(EventBatch(R1, 1, 0, in_r1), 0.0)
    index.apply(EventBatch(R2, 1, 0, [make_stored(1, 2, names=[21, 22])]), 0.0)
    prompt = sample(np.array(make_hashes(1, 2, 3, 4), np.uint64))
    assert whereabouts(prompt, index) == {
        (R1, Tier.GPU): [True, True, True, False],
        (R1, Tier.CPU): [True, True, False, False],
        (R2, Tier.GPU): [True, True, False, False],
        (None, Tier.SHARED): [True, False, False, False],
    }
    index.forget(R1, 0.0)
    assert set(whereabouts(prompt, index)) == {(R2, Tier.GPU), (None, Tier.SHARED)}


def test_a_prompt_without_blocks_is_nowhere() -> None:
    """It was too short, or could not be read."""
    index = PrefixIndex(expect_s=10, remember_s=10, max_remembered=10, max_shared=10)
    assert whereabouts(sample(np.empty(0, np.uint64)), index) == {}

"""Hashing what is new of a prompt."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.block_hash import hash_blocks, root_hash
from serve_app.prompt_hashes import PromptHashes

ids = st.lists(st.integers(0, 2**32 - 1), max_size=40).map(lambda ids: np.array(ids, np.uint32))
sizes = st.integers(1, 5)


@settings(deadline=None)
@given(ids, ids, ids, sizes, sizes, st.sampled_from(["model", "other"]))
def test_it_is_as_if_hashed_from_scratch(
    shared: np.ndarray, one: np.ndarray, other: np.ndarray, size: int, new_size: int, model: str
) -> None:
    """Whatever was hashed before, in whichever blocks and for whichever model."""
    earlier = PromptHashes.of(root_hash("model", size), size, np.concatenate([shared, one]))
    root, prompt = root_hash(model, new_size), np.concatenate([shared, other])
    hashes = PromptHashes.of(root, new_size, prompt, earlier, len(shared))
    assert hashes.root == root
    assert hashes.blocks.dtype == np.uint64
    assert hashes.blocks.tolist() == hash_blocks(root, prompt, new_size)


def test_known_hashes_are_not_computed_again() -> None:
    """What is shared is taken from the earlier prompt, as it is there."""
    root, prompt = root_hash("model", 4), np.arange(12, dtype=np.uint32)
    marked = PromptHashes(root, np.array([1, 2, 3], np.uint64))
    assert PromptHashes.of(root, 4, prompt, marked, 11).blocks.tolist()[:2] == [1, 2]

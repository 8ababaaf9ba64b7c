"""Hashes are equal exactly where everything up to a block's end is."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.block_hash import block_contents, chain, hash_blocks, root_hash
from policies.types import BlockHash

ROOT = root_hash("model", 4)
few_tokens = st.lists(st.integers(0, 2), max_size=24)
block_sizes = st.integers(1, 6)


def _hash(tokens: list[int], block_size: int = 4, root: BlockHash = ROOT) -> list[BlockHash]:
    return hash_blocks(root, np.array(tokens, np.uint32), block_size)


@given(few_tokens, few_tokens, block_sizes)
def test_equal_prefixes_and_no_others(one: list[int], other: list[int], size: int) -> None:
    """Two blocks have one hash if and only if all tokens up to their ends are equal."""
    ends = itertools.product(enumerate(_hash(one, size), 1), enumerate(_hash(other, size), 1))
    for (i, hash_of_one), (j, hash_of_other) in ends:
        assert (hash_of_one == hash_of_other) == (one[: i * size] == other[: j * size])


@given(few_tokens, block_sizes, st.data())
def test_appending(tokens: list[int], size: int, data: st.DataObject) -> None:
    """Hashing new blocks after the last hash gives what hashing all at once gives."""
    whole = _hash(tokens, size)
    known = data.draw(st.integers(0, len(whole)))
    parent = whole[known - 1] if known else ROOT
    assert whole[:known] + _hash(tokens[known * size :], size, parent) == whole


@given(few_tokens, block_sizes)
def test_only_full_blocks(tokens: list[int], size: int) -> None:
    """Tokens after the last full block have no hash."""
    assert len(_hash(tokens, size)) == len(tokens) // size


@given(st.lists(st.integers(0, 2**32 - 1), min_size=8, max_size=40, unique=True), st.data())
def test_order(tokens: list[int], data: st.DataObject) -> None:
    """Exchanging two tokens, or two blocks, changes every hash from the first of them on."""
    size = data.draw(st.sampled_from([1, 4]))  # blocks of one token: whole blocks change places
    last = len(tokens) // size * size - 1
    i = data.draw(st.integers(0, last - 1))
    j = data.draw(st.integers(i + 1, last))
    swapped = tokens.copy()
    swapped[i], swapped[j] = swapped[j], swapped[i]
    before, after = _hash(tokens, size), _hash(swapped, size)
    assert before[: i // size] == after[: i // size]
    assert not set(before[i // size :]) & set(after[i // size :])


def test_far_and_repeated_blocks() -> None:
    """Runs of equal blocks, and ones far apart that change places, keep all hashes different."""
    same = _hash([7] * 4 * 10_000)
    assert len(set(same)) == 10_000
    for distance in (1, 2, 64, 1024, 4096, 8192):
        tokens = [7] * 4 * 10_000
        tokens[0], tokens[4 * distance] = 8, 9
        other = [7] * 4 * 10_000
        other[0], other[4 * distance] = 9, 8
        assert not set(_hash(tokens)) & set(_hash(other))


def test_thue_morse() -> None:
    """Two blocks in the order that defeats polynomial hashes modulo a power of two do not here."""
    order = [i.bit_count() % 2 for i in range(4096)]
    contents = block_contents(np.array([1, 2, 3, 4, 5, 6, 7, 8], np.uint32), 4)
    one = chain(ROOT, [contents[i] for i in order])
    other = chain(ROOT, [contents[1 - i] for i in order])
    assert not set(one) & set(other)


def test_no_collision_among_alike_blocks() -> None:
    """A million blocks that differ in few low bits of few tokens have a million hashes."""
    grid = np.indices((32, 32, 32, 32), np.uint32).reshape(4, -1).T
    assert len(set(block_contents(grid.ravel(), 4))) == 32**4


def test_every_bit_depends_on_every_token() -> None:
    """Changing the lowest bit of any one token flips each bit of the hash about half the time."""
    rng = np.random.default_rng(1)
    flips = np.zeros((16, 64))
    for _ in range(400):
        tokens = rng.integers(0, 150_000, 16, np.uint32)
        for k in range(16):
            changed = tokens.copy()
            changed[k] ^= 1
            [one], [other] = hash_blocks(ROOT, tokens, 16), hash_blocks(ROOT, changed, 16)
            flips[k] += [(one ^ other) >> b & 1 for b in range(64)]
    assert np.all(np.abs(flips / 400 - 0.5) < 0.15)


@pytest.mark.parametrize(
    "other",
    [
        root_hash("another", 4),
        root_hash("model", 5),
        root_hash("model", 4, lora="a"),
        root_hash("model", 4, tenant="a"),
        root_hash("model", 4, lora="a", tenant="b"),
        root_hash("model", 4, lora="ab"),
    ],
)
@given(tokens=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=24))
def test_salts(other: BlockHash, tokens: list[int]) -> None:
    """Nothing is shared between models, block sizes, adapters and tenants."""
    assert not set(_hash(tokens)) & set(_hash(tokens, root=other))
    assert root_hash("model", 4, lora="a") != root_hash("model", 4, tenant="a")


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.int64, np.uint64])
def test_integer_types(dtype: type[np.integer]) -> None:
    """Token ids hash alike in whatever integers they come."""
    assert hash_blocks(ROOT, np.arange(9, dtype=dtype), 4) == _hash(list(range(9)))


def test_known_values() -> None:
    """Hashes stay what they are, as processes of two releases may have to agree on them."""
    assert root_hash("model", 4) == 0xDE0F2FC6C06BA07B
    assert _hash(list(range(8))) == [0xD77A17AC5253A812, 0x385B13A596583CEF]


def test_half_a_character_is_a_name_like_others() -> None:
    """JSON may have one, and what a client sends must not fail."""
    assert root_hash("m", 16, lora="\ud800") != root_hash("m", 16, lora="\ud801")

"""64-bit chained hashes of token blocks: equal prefixes have equal hashes, different ones do not.

    content_i = mix(sum over k of token_ik * M_k)                  (mod 2**64, vectorised)
    hash_i    = fold((hash_(i-1) xor content_i) * ODD)             (mod 2**64, hash_0 = root)

M_k are fixed pseudo-random odd numbers. The sum is multilinear hashing (Lemire and Kaser, "Strongly
universal string hashing is fast", 2014): two blocks that differ in one token never collide, others
with a chance of about 2**-63, at worst 2**-(62-v) where 2**v divides every token's difference.
mix makes the contents look random, so that nothing of that sum's linearity reaches the chain.

Each step of the chain is a bijection of the previous hash and of the content. So chains that
differ in one block, or in their root alone, never meet again; chains that differ in more (blocks
swapped, moved, repeated) meet with a chance of 2**-64. A hash is all there is to know of what
came before: appending needs no other state.

A collision costs a turn sent to the wrong replica, never a wrong answer: engines check their own
hashes.
"""

from functools import cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from policies.types import BlockHash

Tokens = NDArray[np.integer]
"""Token ids, one dimension, none negative."""

_WORD = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15
"""2**64 / golden ratio, as in splitmix64."""


def root_hash(model: str, block_size: int, *, lora: str = "", tenant: str = "") -> BlockHash:
    """Return the hash before the first block; prompts share KV only where all four are equal."""
    fields = b"".join(
        len(field).to_bytes(8, "little") + field
        for field in (_bytes(one) for one in (model, str(block_size), lora, tenant))
    )
    return BlockHash(int.from_bytes(blake2b(fields, digest_size=8).digest(), "little"))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # clients' JSON may have half a character


def hash_blocks(parent: BlockHash, tokens: Tokens, block_size: int) -> list[BlockHash]:
    """Return the hashes of the full blocks of `tokens`, which follow the block hashed `parent`.

    `parent` is a prompt's root hash, or the last hash of what was hashed of it before.
    """
    return chain(parent, block_contents(tokens, block_size))


def block_contents(tokens: Tokens, block_size: int) -> list[int]:
    """Return a 64-bit hash of each full block's own tokens, whatever precedes it."""
    count = len(tokens) // block_size
    blocks = np.asarray(tokens[: count * block_size], np.uint64).reshape(count, block_size)
    contents: list[int] = _mix(blocks @ _multipliers(block_size)).tolist()
    return contents


def chain(parent: BlockHash, contents: list[int]) -> list[BlockHash]:
    """Return the hash of each block, given what precedes the first and the blocks' contents."""
    hashes: list[BlockHash] = []
    append = hashes.append
    last: int = parent
    for content in contents:
        last = (last ^ content) * _ODD & _WORD
        last ^= last >> 32
        append(last)  # type: ignore[arg-type]  # a call to BlockHash would cost as much as the rest
    return hashes


@cache
def _multipliers(block_size: int) -> NDArray[np.uint64]:
    counters = np.arange(1, block_size + 1, dtype=np.uint64) * np.uint64(_ODD)
    return _mix(counters) | np.uint64(1)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """splitmix64's finaliser: a bijection in which each bit depends on all."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

"""What is looked for of a prompt in the shared tier's directory, and what is told of it."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vllm.v1.kv_offload.base import OffloadKey, ReqContext, make_offload_key

from serve_app.kv_directory import KvDirectory
from serve_app.tier_lookups import TierLookups

BLOCKS = 100

Lookup = Callable[[list[OffloadKey]], list[bool]]


def key(block: int, group: int = 0) -> OffloadKey:
    """Name a block of the prompt."""
    return make_offload_key(block.to_bytes(2, "big") * 16, group)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names that are looked for."""
    looked: list[str] = []
    exists = os.path.exists

    def note(path: str) -> bool:
        looked.append(path)
        return exists(path)

    monkeypatch.setattr(os.path, "exists", note)
    return looked


@pytest.fixture
def directory(tmp_path: Path) -> KvDirectory:
    """Open one that is empty."""
    directory = KvDirectory(tmp_path, "model", 10, 1 << 20)
    directory.open()
    return directory


@pytest.fixture
def lookup(directory: KvDirectory) -> Iterator[Lookup]:
    """Look keys up for one request whose prompt has two groups, of 16 tokens a block."""
    context = ReqContext("a")
    for group in (0, 1):
        for block in range(BLOCKS):
            context.set_offload_key_position(key(block, group), 16 * (block + 1))
    lookups = TierLookups(directory, "tier")
    yield lambda keys: list(lookups.batch_lookup(keys, context))
    lookups.shutdown()


def store(directory: KvDirectory, *keys: OffloadKey) -> None:
    """Keep blocks."""
    for one in keys:
        directory.store(one, bytes(10), time.time_ns())


def test_a_cold_prompt_costs_one_look(
    lookup: Lookup, directory: KvDirectory, looked: list[str]
) -> None:
    """Without its first block no other is of use; where some are there, the first gap ends it."""
    prompt = [key(block) for block in range(BLOCKS)]
    assert lookup(prompt) == [False] * BLOCKS
    assert len(looked) == 1
    store(directory, *prompt[:3], *prompt[50:60])
    looked.clear()
    assert lookup(prompt) == [True] * 3 + [False] * (BLOCKS - 3)
    assert len(looked) == 4


def test_windows_are_found_behind_gaps(lookup: Lookup, directory: KvDirectory) -> None:
    """A group that is asked for from the end needs only its last blocks."""
    store(directory, key(7, 1), key(8, 1))
    assert (
        lookup([key(block, 1) for block in range(9, -1, -1)]) == [False, True, True] + [False] * 7
    )


def test_windows_beyond_the_prefix_are_not_looked_for(
    lookup: Lookup, directory: KvDirectory, looked: list[str]
) -> None:
    """They could not be used; those within are all told, as it's not known which one is."""
    store(directory, *(key(block) for block in range(3)), *(key(block, 1) for block in range(10)))
    looked.clear()
    found = lookup(
        [key(block) for block in range(10)] + [key(block, 1) for block in range(9, -1, -1)]
    )
    assert found == [True] * 3 + [False] * 7 + [False] * 7 + [True] * 3
    assert len(looked) == 4 + 3


def test_one_block_alone_ends_nothing(lookup: Lookup, directory: KvDirectory) -> None:
    """Of a single one it's not known from which end its group is asked for."""
    store(directory, key(5, 1))
    assert lookup([key(2), key(5, 1)]) == [False, True]

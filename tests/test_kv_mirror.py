"""vLLM's events become events for an index, and at any time a snapshot says the same."""

from collections import Counter
from itertools import takewhile
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, KVEventBatch

from policies.block_hash import hash_blocks, root_hash
from policies.kv_events import Cleared, EngineHash, Event, EventBatch, Removed, Snapshot, Stored
from policies.match import NO_MATCH, Match
from policies.prefix_index import PrefixIndex
from policies.types import BlockHash, ReplicaId, Tier
from serve_app.kv_event import KvEvent
from serve_app.kv_mirror import LATE_BATCHES, KvMirror
from serve_app.shared_names import PENDING_BATCHES

MODEL, BLOCK_SIZE, REPLICA = "model", 4, ReplicaId("r1")
Prefix = tuple[int, ...]
"""A block, as the numbers of all blocks up to it."""


def tokens(*blocks: int) -> list[int]:
    """Return the tokens of blocks; a number stands for a block of its own tokens."""
    return [block * BLOCK_SIZE + i for block in blocks for i in range(BLOCK_SIZE)]


def name(prefix: Prefix) -> int:
    """Return the engine's name of a block."""
    return int("".join(map(str, prefix)))


def stored(prompt: Prefix, start: int = 0, **changes: Any) -> BlockStored:
    """Return vLLM's event for a prompt's blocks from `start` on."""
    prefixes = [prompt[:end] for end in range(start + 1, len(prompt) + 1)]
    fields: dict[str, Any] = {
        "block_hashes": [name(prefix) for prefix in prefixes],
        "parent_block_hash": name(prompt[:start]) if start else None,
        "token_ids": tokens(*prompt[start:]),
        "block_size": BLOCK_SIZE,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    return BlockStored(**fields | changes)


def bare(medium: str, *prefixes: Prefix) -> list[KvEvent]:
    """Return the offloading connector's events where it knows no more than the names."""
    fields = {"token_ids": [], "block_size": 0, "kv_cache_spec_kind": None, "medium": medium}
    return [
        stored(prefix, len(prefix) - 1, parent_block_hash=None, **fields) for prefix in prefixes
    ]


def stored_in_cpu(*prefixes: Prefix) -> list[KvEvent]:
    """Return the offloading connector's events without `self_describing_kv_events`."""
    return bare("CPU", *prefixes)


def removed(*prefixes: Prefix, medium: str = "GPU", group: int | None = 0) -> BlockRemoved:
    """Return vLLM's event for blocks that left."""
    return BlockRemoved([name(prefix) for prefix in prefixes], medium, group)


def hashes(*prompt: int, root: BlockHash | None = None) -> list[BlockHash]:
    """Return our hashes of a prompt's blocks."""
    root = root_hash(MODEL, BLOCK_SIZE) if root is None else root
    return hash_blocks(root, np.array(tokens(*prompt)), BLOCK_SIZE)


class Fed:
    """An index of one replica, fed by its mirror."""

    def __init__(self, model: str = MODEL) -> None:
        self.mirror = KvMirror(model)
        self.index = PrefixIndex(10.0, 10.0, 100, 100)
        self.told: list[Event] = []
        self.batches = 0

    def hear(self, *events: KvEvent) -> list[Event]:
        """Feed a batch as it comes from the wire, and return what it became."""
        wire = msgspec.msgpack.encode(KVEventBatch(0.0, list(events)))
        batch = msgspec.msgpack.decode(wire, type=KVEventBatch)
        told = self.mirror.apply(batch.events)
        assert self.index.apply(EventBatch(REPLICA, 1, self.batches, told), 0.0)
        self.batches += 1
        return told

    def copy(self) -> "Fed":
        """Return one that knows no more than a snapshot."""
        other = Fed()
        other.mirror, other.batches = self.mirror, self.batches
        snapshot = Snapshot(REPLICA, 1, self.batches - 1, self.mirror.snapshot())
        other.index.restore(snapshot, 0.0)
        return other

    def match(self, *prompt: int, root: BlockHash | None = None) -> Match:
        """Return how much of a prompt is held, by the index and by a snapshot alike."""
        wanted = hashes(*prompt, root=root)
        found = self.index.match(wanted).get(REPLICA, NO_MATCH)
        if self.batches:
            other = PrefixIndex(10.0, 10.0, 100, 100)
            other.restore(Snapshot(REPLICA, 1, 0, self.mirror.snapshot()), 0.0)
            assert other.match(wanted).get(REPLICA, NO_MATCH) == found
        return found


def test_stores_follow_each_other() -> None:
    """A prompt stored in two steps matches whole; one that parts from it up to there."""
    fed = Fed()
    assert fed.mirror.block_size is None
    fed.hear(stored((1, 2)), stored((1, 2, 3, 4), 2))
    assert fed.mirror.block_size == BLOCK_SIZE
    assert fed.match(1, 2, 3, 4) == Match(4)
    assert fed.match(1, 2, 5) == Match(2)
    assert fed.match(2, 1) == NO_MATCH


def test_a_copy_more_needs_a_removal_more() -> None:
    """A block that two requests computed is there until both copies went."""
    fed = Fed()
    fed.hear(stored((1, 2)), stored((1, 2)))
    fed.hear(removed((1, 2)), removed((1,)))
    assert fed.match(1, 2) == Match(2)
    fed.hear(removed((1, 2)))
    assert fed.match(1, 2) == Match(1)
    fed.hear(removed((1,)), removed((1,)))
    assert fed.match(1, 2) == NO_MATCH


def test_what_an_engine_wrote_to_the_shared_tier() -> None:
    """It counts once written, and stays when the block left the engine's own memories."""
    fed = Fed()
    fed.hear(stored((1, 2)), *stored_in_cpu((1,), (1, 2)))
    fed.hear(stored((1, 2), medium="STORAGE"), removed((1, 2)), removed((1,)))
    assert fed.match(1, 2) == Match(0, 2)
    fed.hear(removed((1,), (1, 2), medium="CPU"))
    for _ in range(LATE_BATCHES + 1):
        fed.hear()
    assert fed.index.match(hashes(1, 2)) == {REPLICA: Match(0, 0, 2)}
    assert fed.mirror.snapshot() == ()


def test_what_an_engine_found_in_the_shared_tier() -> None:
    """Names mean nothing until the blocks were read into GPU memory."""
    fed = Fed()
    fed.hear(stored((9,)))
    assert fed.hear(*bare("STORAGE", (1,), (1, 2))) == []
    fed.hear(stored((1, 2)))
    fed.hear(removed((1,), (1, 2)))
    assert fed.match(1, 2) == Match(0, 0, 2)


def test_what_was_found_and_never_read_is_forgotten() -> None:
    """A name is kept as long as reading may take."""
    fed = Fed()
    fed.hear(stored((9,)))
    fed.hear(*bare("STORAGE", (1,)))
    for _ in range(PENDING_BATCHES):
        fed.mirror.apply([])
    assert {event.tier for event in fed.mirror.apply([stored((1,))])} == {Tier.GPU}


def test_who_removes_from_the_shared_tier_need_not_have_written() -> None:
    """A removal is passed on by name, whoever knows the block."""
    fed = Fed()
    fed.hear(stored((9,)))
    gone = [EngineHash(name((1,))), EngineHash(name((1, 2)))]
    assert fed.hear(removed((1,), (1, 2), medium="STORAGE")) == [Removed(Tier.SHARED, gone)]


def test_clearing_is_of_both_of_the_engines_memories() -> None:
    """What is in the shared tier stays, as it does in vLLM."""
    fed = Fed()
    fed.hear(stored((1, 2)), *stored_in_cpu((1, 2)), stored((1,), medium="STORAGE"))
    assert fed.hear(AllBlocksCleared()) == [Cleared(Tier.GPU), Cleared(Tier.CPU)]
    assert fed.match(1, 2) == Match(0, 0, 1)
    fed.hear(stored((1, 2)))
    assert fed.match(1, 2) == Match(2)


def test_what_came_to_cpu_memory_before_it_was_emptied() -> None:
    """vLLM tells it in the same batch, after the clearing, and no more of it ever."""
    fed = Fed()
    fed.hear(stored((1, 2)))
    fed.hear(AllBlocksCleared(), *stored_in_cpu((1,), (1, 2)), stored((3,)))
    assert fed.match(1, 2) == NO_MATCH
    assert fed.match(3) == Match(1)
    fed.hear(stored((1, 2)))
    fed.hear(*stored_in_cpu((1,)), removed((1, 2), (1,)))
    fed.hear(removed((1,), medium="CPU"))
    assert fed.match(1, 2) == NO_MATCH


def test_cpu_memory_counts_after_gpu_memory() -> None:
    """Blocks in CPU memory are known by their names, in whatever order and form they come."""
    fed = Fed()
    fed.hear(stored((1, 2, 3)))
    (told,) = fed.hear(*stored_in_cpu((1, 2, 3), (1,), (1, 2)))
    assert isinstance(told, Stored)
    assert (told.tier, len(told.contents)) == (Tier.CPU, 3)
    fed.hear(removed((1, 2, 3)), removed((1, 2)))
    assert fed.match(1, 2, 3) == Match(1, 2)
    fed.hear(removed((1, 2, 3), medium="CPU"))
    assert fed.match(1, 2, 3) == Match(1, 1)


def test_a_chunk_of_blocks_in_cpu_memory() -> None:
    """With `self_describing_kv_events` a chunk names all its blocks; chunks may share some."""
    fed = Fed()
    fed.hear(stored((1, 2, 3)), stored((1, 2, 4), 2))
    fed.hear(stored((1, 2, 3), medium="CPU"), stored((1, 2, 4), medium="CPU"))
    fed.hear(removed((1,), (1, 2), (1, 2, 3), (1, 2, 4)))
    assert fed.match(1, 2, 3) == Match(0, 3)
    fed.hear(removed((1,), (1, 2), (1, 2, 3), medium="CPU"))
    assert fed.match(1, 2, 3) == Match(0, 2)
    assert fed.match(1, 2, 4) == Match(0, 3)
    fed.hear(removed((1,), (1, 2), (1, 2, 4), medium="CPU"))
    assert fed.match(1, 2, 4) == NO_MATCH


def test_a_late_store_in_cpu_memory_still_counts() -> None:
    """GPU memory may report the eviction of a block before CPU memory has its store reported."""
    fed = Fed()
    fed.hear(stored((1, 2), extra_keys=[("salt",), None]))
    fed.hear(removed((1, 2), (1,)), *stored_in_cpu((1,)))
    fed.hear(*stored_in_cpu((1, 2)))
    salted = root_hash(MODEL, BLOCK_SIZE, tenant="salt")
    assert fed.match(1, 2, root=salted) == Match(0, 2)
    assert fed.match(1, 2) == NO_MATCH


def test_what_left_is_forgotten() -> None:
    """Memory is bounded by what the engine holds, and a little of what it held."""
    fed = Fed()
    fed.hear(stored((1, 2)))
    for i in range(3, 200):
        prompt = (1, 2, i)
        fed.hear(stored(prompt, 2), removed(prompt), removed(prompt))
    fed.hear(removed((1, 2), (1,)))
    for _ in range(LATE_BATCHES):
        fed.hear()
    assert not fed.mirror._blocks
    assert not fed.mirror._left
    assert not any(fed.mirror._copies.values())


def test_a_block_of_unknown_tokens_counts_once_they_are_known() -> None:
    """What a shared tier brought into CPU memory counts when GPU memory has said what it is."""
    fed = Fed()
    fed.hear(stored((9,)))
    assert fed.hear(*stored_in_cpu((1,), (1, 2))) == []
    fed.hear(stored((1, 2)))
    fed.hear(removed((1,), (1, 2)))
    assert fed.match(1, 2) == Match(0, 2)
    assert fed.hear(*stored_in_cpu((3,)), removed((3,), medium="CPU")) == []
    fed.hear(stored((3,)), removed((3,)))
    assert fed.match(3) == NO_MATCH


def test_a_block_without_its_parent_counts_again_with_it() -> None:
    """A parent may go before its child and come back; a snapshot between says so, too."""
    fed = Fed()
    fed.hear(stored((1, 2, 3)))
    fed.hear(removed((1,)))
    assert fed.match(1, 2, 3) == NO_MATCH
    other = fed.copy()
    event = fed.mirror.apply([stored((1,))])
    for index in (fed.index, other.index):
        assert index.apply(EventBatch(REPLICA, 1, 2, event), 0.0)
    assert fed.match(1, 2, 3) == other.match(1, 2, 3) == Match(3)


def test_a_beginning_that_was_not_heard_is_left_out() -> None:
    """After a loss, blocks with an unknown parent don't count and don't upset the index."""
    fed = Fed()
    assert fed.hear(stored((1, 2, 3), 2), removed((1,)), removed((1, 2, 3))) == []
    fed.hear(stored((1, 2, 3), 2), stored((1, 2)), stored((1, 2, 3), 2))
    assert fed.match(1, 2, 3) == Match(3)
    fed.hear(removed((1, 2, 3)))
    assert fed.match(1, 2, 3) == Match(3)
    fed.hear(removed((1, 2, 3)))
    assert fed.match(1, 2, 3) == Match(2)


@pytest.mark.parametrize(
    ("changes", "root"),
    [
        ({}, {}),
        ({"extra_keys": [("salt",), None]}, {"tenant": "salt"}),
        ({"lora_name": "l", "extra_keys": [("l",), ("l",)]}, {"lora": "l"}),
        (
            {"lora_name": "l", "extra_keys": [("l", "salt"), ("l",)]},
            {"lora": "l", "tenant": "salt"},
        ),
        ({"lora_name": "l", "extra_keys": [("l", "l"), ("l",)]}, {"lora": "l", "tenant": "l"}),
    ],
)
def test_prompts_share_only_with_their_own(changes: dict[str, Any], root: dict[str, str]) -> None:
    """Model, LoRA adapter and cache salt, which only the first block carries, are in the root."""
    fed = Fed()
    fed.hear(stored((1, 2), **changes))
    keys = changes.get("extra_keys", [None])[1:]
    fed.hear(stored((1, 2, 3), 2, **changes | {"extra_keys": keys}))
    for other in ({}, {"tenant": "salt"}, {"lora": "l"}, root, {"tenant": "l"}):
        found = fed.match(1, 2, 3, root=root_hash(MODEL, BLOCK_SIZE, **other))
        assert found == (Match(3) if other == root else NO_MATCH)
    assert fed.match(1, root=root_hash("other", BLOCK_SIZE)) == NO_MATCH


@pytest.mark.parametrize("keys", [[("image", 0)], [("image", 1)], [("other", 0)], [b"digest"]])
def test_images_and_embeddings_are_not_their_tokens(keys: list[Any]) -> None:
    """A block that holds more than tokens matches no block of tokens, nor do those after it."""
    fed = Fed()
    fed.hear(stored((1, 2, 3), extra_keys=[("salt",), tuple(keys), None]))
    assert fed.match(1, 2, 3, root=root_hash(MODEL, BLOCK_SIZE, tenant="salt")) == Match(1)
    contents = fed.mirror.snapshot()[0].contents
    for others in ([("image", 0)], [("image", 1)], [("other", 0)], [b"digest"]):
        again = Fed()
        again.hear(stored((1, 2, 3), extra_keys=[None, tuple(others), None]))
        assert (again.mirror.snapshot()[0].contents == contents) == (others == keys)


def test_only_one_group_counts() -> None:
    """Sliding windows, further groups and blocks of other sizes are left out."""
    fed = Fed()
    window: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "sliding_window"}
    assert fed.hear(stored((1, 2), **window), *stored_in_cpu((1,)), removed((1,))) == []
    fed.hear(stored((1, 2), group_idx=1))
    assert fed.hear(removed((1,)), removed((1,), group=2), stored((1, 2), **window)) == []
    assert fed.hear(stored((1, 2), group_idx=2), stored((1,), medium="DISK", group_idx=1)) == []
    assert fed.hear(stored((1, 2), group_idx=1, block_size=2)) == []
    assert fed.match(1, 2) == Match(2)
    assert fed.hear(removed((1, 2), group=1)) == [Removed(Tier.GPU, [EngineHash(name((1, 2)))])]


def test_one_group_need_not_be_named() -> None:
    """Medium, group and kind may be left out."""
    fed = Fed()
    fed.hear(stored((1, 2), medium=None, group_idx=None, kv_cache_spec_kind=None))
    assert fed.match(1, 2) == Match(2)
    fed.hear(BlockRemoved([name((1, 2))], None))
    assert fed.match(1, 2) == Match(1)


def test_names_may_be_bytes() -> None:
    """They mean the same as the numbers that vLLM makes of them."""
    fed = Fed()
    long = b"\xff" * 24 + (5).to_bytes(8, "big")
    fed.hear(stored((1,), block_hashes=[long]))
    assert fed.match(1) == Match(1)
    fed.hear(BlockRemoved([5], "GPU", 0))
    assert fed.match(1) == NO_MATCH


def test_a_shared_tier() -> None:
    """vLLM's storage is the shared tier."""
    fed = Fed()
    fed.hear(stored((1, 2)), stored((1, 2), medium="STORAGE"), AllBlocksCleared())
    assert fed.match(1, 2) == Match(0, 0, 2)


PROMPTS = [(1, 1, 1, 1), (1, 1, 2, 1), (1, 2, 1, 2), (2, 1, 1, 2), (2, 2, 2, 2)]
ROOT = root_hash(MODEL, BLOCK_SIZE)
PROMPT_HASHES = {p: hash_blocks(ROOT, np.array(tokens(*p)), BLOCK_SIZE) for p in PROMPTS}
actions = st.one_of(
    st.tuples(st.just("store"), st.sampled_from(PROMPTS), st.integers(0, 3), st.integers(1, 4)),
    st.tuples(st.just("offload"), st.sampled_from(PROMPTS), st.integers(0, 3), st.integers(1, 4)),
    st.tuples(st.sampled_from(["GPU", "CPU"]), st.integers(0, 99), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("clear"), st.just(0), st.just(0), st.just(0)),
)


class Engine:
    """An engine with two tiers.

    It stores blocks after those in GPU memory, and into CPU memory what was lately in GPU memory.
    What came to the latter before it was emptied is told after.
    """

    def __init__(self) -> None:
        self.held: Counter[tuple[str, Prefix]] = Counter()
        self.lately: list[set[Prefix]] = [set(), set()]
        self.is_cleared = False

    def step(self, actions: list[tuple[Any, ...]]) -> list[KvEvent]:
        """Do some things; return vLLM's events of them."""
        self.lately = [self.lately[1], set(self.prefixes("GPU"))]
        self.is_cleared = False
        return [event for action in actions for event in self.act(*action)]

    def prefixes(self, medium: str) -> list[Prefix]:
        """Return what is in a tier."""
        return sorted(prefix for (where, prefix), n in self.held.items() if where == medium and n)

    def act(self, kind: str, what: Any, start: int, end: int) -> list[KvEvent]:
        """Do something; return vLLM's events of it."""
        if kind == "store":
            while start and not self.held["GPU", what[:start]]:
                start -= 1
            prefixes = [what[:i] for i in range(start + 1, max(start + 1, end) + 1)]
            self.held.update(("GPU", prefix) for prefix in prefixes)
            return [stored(prefixes[-1], start)]
        if kind == "offload":
            known = set().union(self.prefixes("GPU"), *self.lately)
            prefixes = [what[:i] for i in range(end, start, -1) if what[:i] in known]
            if not self.is_cleared:
                self.held.update(("CPU", prefix) for prefix in prefixes)
            return stored_in_cpu(*prefixes)
        if kind == "clear":
            self.held.clear()
            self.is_cleared = True
            return [AllBlocksCleared()]
        here = self.prefixes(kind)
        gone = [here[(what + i) % len(here)] for i in range(min(start, len(here)))]
        self.held -= Counter((kind, prefix) for prefix in gone)
        return [removed(prefix, medium=kind) for prefix in gone]

    def match(self, prompt: Prefix) -> Match:
        """Count a prompt's blocks, one by one."""
        prefixes = [prompt[:end] for end in range(1, len(prompt) + 1)]
        gpu = len(list(takewhile(lambda prefix: self.held["GPU", prefix], prefixes)))
        cpu = len(list(takewhile(lambda prefix: self.held["CPU", prefix], prefixes[gpu:])))
        return Match(gpu, cpu)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(actions, max_size=3), min_size=1, max_size=20))
def test_a_snapshot_says_what_all_events_said(steps: list[list[tuple[Any, ...]]]) -> None:
    """All events, or a snapshot at any point and then the rest: the same, and what is held."""
    engine, fed = Engine(), Fed()
    copies: list[PrefixIndex] = []
    for step in steps:
        told = fed.hear(*engine.step(step))
        for index in copies:
            assert index.apply(EventBatch(REPLICA, 1, fed.batches - 1, told), 0.0)
        copies.append(fed.copy().index)
        held = {prefix for (_, prefix), n in engine.held.items() if n}
        for index in (fed.index, *copies):
            assert len(index) == len(held)
            for prompt, hashes in PROMPT_HASHES.items():
                assert index.match(hashes).get(REPLICA, NO_MATCH) == engine.match(prompt)
        assert len(fed.mirror._blocks) <= len(held) + len(fed.mirror._left)

"""What one engine holds in its caches, in the terms of `policies.kv_events`.

vLLM names a block by its own hash. A store in GPU memory says all that our hash of it needs:
tokens, parent, LoRA adapter, cache salt. One in another tier lacks the salt and other keys, or even
the tokens, so it counts only once the block's name was heard from GPU memory. Blocks mostly are
there first; those that another engine left in a shared tier get there when first used. What leaves
the shared tier may have been written by others, so that is passed on by name.

Source: vLLM 0.32, v1/core/block_pool.py (GPU memory),
distributed/kv_transfer/kv_connector/v1/offloading/events.py (other tiers).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored

from policies.block_hash import chain
from policies.kv_events import Cleared, EngineHash, Event, Removed, Stored
from policies.types import BlockHash, Tier
from serve_app.kv_event import FULL_ATTENTION, TIERS, KvEvent, contents_of, engine_hash, root_of
from serve_app.shared_names import SharedNames

LATE_BATCHES = 8
"""How long a block that left is still known: a store in CPU memory is reported when it's done,
which may be one or two batches after the block was evicted from GPU memory."""


class _Block(NamedTuple):
    """A block's hash, that of all that precedes it, and that of its own tokens."""

    hash: BlockHash
    before: BlockHash
    content: int


_Change = tuple[type[Event], Tier, list[EngineHash]]


class KvMirror:
    """The blocks of one engine, from its start on. `block_size` is None until the first store.

    Of several KV cache groups only the first with full attention counts.
    """

    def __init__(self, model: str) -> None:
        self.block_size: int | None = None
        self._model = model
        self._group: int | None = None
        self._copies: dict[Tier, dict[EngineHash, int]] = {Tier.GPU: {}, Tier.CPU: {}}
        self._shared = SharedNames()
        self._blocks: dict[EngineHash, _Block] = {}
        """Those whose name was heard from GPU memory: held by the engine, or in `_left`."""
        self._left: dict[EngineHash, int] = {}
        """The batch in which a block lost its last copy, oldest first."""
        self._batch = 0

    def apply(self, events: Sequence[KvEvent]) -> list[Event]:
        """Take in one batch of the engine and return the same for an index.

        Every `Stored` says what precedes it by `root` alone, so that its parent need not be held.
        """
        self._batch += 1
        changes: list[_Change] = []
        is_cleared = False
        for event in events:
            match event:
                case BlockStored() if is_cleared and TIERS.get(event.medium) is Tier.CPU:
                    pass  # it came there before, and vLLM tells it after
                case BlockStored() if self._counts_store(event):
                    changes += self._store(event)
                case BlockRemoved() if event.medium in TIERS and event.group_idx == self._group:
                    changes.append(self._remove(event))
                case AllBlocksCleared():
                    is_cleared = True
                    changes += [self._clear(tier) for tier in self._copies]
        told = [event for change in _joined(changes) for event in self._told(*change)]
        self._forget()
        return told

    def snapshot(self) -> tuple[Stored, ...]:
        """Return all that is held, tier by tier, parents before their children.

        Of the shared tier it has what the engine also holds.
        """
        stored = [*self._runs(Tier.SHARED, self._shared.known)]
        for tier, copies in self._copies.items():
            left = {name: count for name, count in copies.items() if name in self._blocks}
            while left:
                stored += self._runs(tier, left)
                left = {name: count - 1 for name, count in left.items() if count > 1}
        return tuple(stored)

    def _counts_store(self, event: BlockStored) -> bool:
        """Tell whether a store is of the group that counts; the first one decides which it is."""
        if event.medium not in TIERS:
            return False
        # vLLM gives the size 0 where it has nothing to tell but the name.
        if self.block_size is None and event.block_size:
            if event.kv_cache_spec_kind not in FULL_ATTENTION:
                return False
            self.block_size, self._group = event.block_size, event.group_idx
        return event.group_idx == self._group and event.block_size in (self.block_size, 0)

    def _store(self, event: BlockStored) -> Iterator[_Change]:
        tier, names = TIERS[event.medium], [engine_hash(block) for block in event.block_hashes]
        if tier is Tier.GPU:
            yield from self._learn(event, names)
        known = [name for name in names if name in self._blocks]
        if tier is Tier.SHARED:
            self._shared.add(known)
            self._shared.find((name for name in names if name not in self._blocks), self._batch)
        else:
            copies = self._copies[tier]
            for name in names:
                copies[name] = copies.get(name, 0) + 1
                self._left.pop(name, None)
        yield Stored, tier, known

    def _learn(self, event: BlockStored, names: list[EngineHash]) -> Iterator[_Change]:
        """Get to know the blocks of a store, and yield where else they turn out to be."""
        if event.parent_block_hash is None:
            before = root_of(event, self._model)
        elif parent := self._blocks.get(engine_hash(event.parent_block_hash)):
            before = parent.hash
        else:
            return  # its beginning was never heard
        contents = contents_of(event)
        hashes = chain(before, contents)
        for name, (last, block), content in zip(
            names, pairwise([before, *hashes]), contents, strict=True
        ):
            if name not in self._blocks:
                self._blocks[name] = _Block(block, last, content)
                for tier, copies in self._copies.items():
                    yield from [(Stored, tier, [name])] * copies.get(name, 0)
                if self._shared.learn(name):
                    yield Stored, Tier.SHARED, [name]

    def _remove(self, event: BlockRemoved) -> _Change:
        tier, names = TIERS[event.medium], [engine_hash(block) for block in event.block_hashes]
        if tier is Tier.SHARED:
            for name in names:
                self._shared.discard(name)
            return Removed, tier, names
        copies = self._copies[tier]
        told: list[EngineHash] = []
        for name in names:
            if name not in copies:
                continue
            if name in self._blocks:
                told.append(name)
            copies[name] -= 1
            if not copies[name]:
                del copies[name]
                self._leave(name)
        return Removed, tier, told

    def _clear(self, tier: Tier) -> _Change:
        """Empty one of the engine's own tiers.

        vLLM tells of GPU memory alone; KvAudit, the only one to ask for it, has both emptied.
        """
        names, self._copies[tier] = self._copies[tier], {}
        for name in names:
            self._leave(name)
        return Cleared, tier, []

    def _leave(self, name: EngineHash) -> None:
        if name in self._blocks and not any(name in copies for copies in self._copies.values()):
            self._left[name] = self._batch

    def _forget(self) -> None:
        """Forget blocks that left too long ago."""
        while self._left:
            name, batch = next(iter(self._left.items()))
            if batch > self._batch - LATE_BATCHES:
                break
            del self._left[name], self._blocks[name]
            self._shared.discard(name)
        self._shared.expire(self._batch)

    def _told(self, kind: type[Event], tier: Tier, names: list[EngineHash]) -> Iterator[Event]:
        if kind is Stored:
            yield from self._runs(tier, names)
        elif kind is Cleared:
            yield Cleared(tier)
        elif names:
            yield Removed(tier, names)

    def _runs(self, tier: Tier, names: Iterable[EngineHash]) -> Iterator[Stored]:
        """Yield blocks, those together that follow each other; CPU stores come in any order."""
        run: list[EngineHash] = []
        for name in self._in_order(names):
            if run and self._blocks[run[-1]].hash != self._blocks[name].before:
                yield self._run(tier, run)
                run = []
            run.append(name)
        if run:
            yield self._run(tier, run)

    def _run(self, tier: Tier, names: list[EngineHash]) -> Stored:
        blocks = [self._blocks[name] for name in names]
        return Stored(tier, blocks[0].before, None, names, [block.content for block in blocks])

    def _in_order(self, names: Iterable[EngineHash]) -> Iterator[EngineHash]:
        """Yield blocks depth first: each after its parent, if that is one of them."""
        followers: dict[BlockHash, list[EngineHash]] = {}
        for name in names:
            followers.setdefault(self._blocks[name].before, []).append(name)
        hashes = {self._blocks[name].hash for name in names}
        left = [name for name in names if self._blocks[name].before not in hashes]
        while left:
            name = left.pop()
            yield name
            left += followers.pop(self._blocks[name].hash, ())


def _joined(changes: Iterable[_Change]) -> list[_Change]:
    """Make one of successive changes of one kind in one tier; vLLM removes block by block."""
    joined: list[_Change] = []
    for kind, tier, names in changes:
        if joined and joined[-1][:2] == (kind, tier):
            joined[-1][2].extend(names)
        else:
            joined.append((kind, tier, [*names]))
    return joined

"""vLLM's tiering manager over a directory: what one engine computed another one gets, or computes.

Two engines' halves of the connector, scheduler's and worker's, run here without a model.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadKey,
    ReqContext,
    ScheduleEndContext,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.manager import TieringOffloadingManager

from policies.fetch_patience import Rest
from serve_app import shared_tier, tier_directory, tier_stores
from serve_app.host_tiering import HostTieringSpec
from serve_app.kv_directory import KvDirectory
from serve_app.kv_uses import KvUses
from serve_app.shared_tier import SharedFsTier
from serve_app.tier_job import TierJob
from serve_app.tier_loads import TierLoads
from serve_app.tier_report import ABANDONED, COUNTERS, DAMAGED, EVICTED, NOT_STORED
from serve_app.tier_requests import TierRequest
from serve_app.tier_stores import TierStores
from tests.patience import wait_until
from tests.test_host_offload import Rows, make_caches, make_rows

pytestmark = pytest.mark.slow

PAGE_BYTES = 4001  # so that rows differ
CHUNK_BYTES = 4096  # pages of memory
NUM_CHUNKS = 32


class HeldDirectory(KvDirectory):
    """A directory whose every call takes as long as `delay_s` says."""

    delay_s = 0.0
    touch_s = 0.0
    is_full = False
    slow_keys: Collection[bytes] = ()
    hangs: Collection[str] = ()
    ends = threading.Event()
    """When calls that hang come back."""

    def wait(self, call: str) -> None:
        time.sleep(self.delay_s)
        if call in self.hangs:
            self.ends.wait(60)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.uses = HeldUses(self)

    def open(self) -> None:
        self.wait("open")
        super().open()

    def has(self, keys: Any) -> list[bool]:
        self.wait("look")
        return super().has(keys)

    def num_leading(self, keys: Any) -> int:
        self.wait("look")
        return super().num_leading(keys)

    def load(self, key: bytes, used_at_ns: int) -> memoryview:
        self.wait("load")
        if key in self.slow_keys:
            time.sleep(2)
        return super().load(key, used_at_ns)

    def store(self, key: bytes, payload: bytes | memoryview, used_at_ns: int) -> None:
        self.wait("store")
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().store(key, payload, used_at_ns)


class HeldUses(KvUses):
    """Its uses, which are marked as slowly."""

    def __init__(self, held: HeldDirectory) -> None:
        super().__init__(held.path)
        self._held = held

    def mark(self, used_at_ns: Any) -> None:
        time.sleep(self._held.touch_s)
        self._held.wait("touch")
        super().mark(used_at_ns)


class HeldTier(SharedFsTier):
    """A tier on such a directory."""

    directory_type = HeldDirectory

    @property
    def held(self) -> HeldDirectory:
        assert isinstance(self._directory, HeldDirectory)
        return self._directory


def make_config(engine: str, path: Path, **changed: Any) -> OffloadingConfig:
    """Make the config that vLLM derives for one group of one layer."""
    tier = {
        "type": "HeldTier",
        "module_path": __name__,
        "path": str(path),
        "max_bytes": 1 << 20,
        "model_identity": "weights",
    }
    config = OffloadingConfig(
        groups=(OffloadingGroupConfig(16, ("layer",), 0),),
        worker_kv_bytes_per_block=PAGE_BYTES,
        enable_kv_cache_events=True,
        extra_config={"cpu_bytes_to_use": NUM_CHUNKS * CHUNK_BYTES, "secondary_tiers": [tier]},
        engine_id=f"warmturn-test-{engine}-{time.monotonic_ns()}",
        model=OffloadingModelConfig("org/model", "float32"),
        cache=OffloadingCacheConfig(16, 1),
        parallel=OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True),
    )
    tier |= changed.pop("tier", {})
    return replace(config, **changed)


@dataclass
class Engine:
    """One engine's manager and worker, and a clock of steps."""

    caches: CanonicalKVCaches
    spec: HostTieringSpec
    jobs: int = 0
    events: list[OffloadingEvent] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start both halves."""
        self.worker = self.spec.get_worker(self.caches)
        manager = self.spec.get_manager()
        assert isinstance(manager, TieringOffloadingManager)
        self.manager = manager
        (tier,) = manager.secondary_tiers
        assert isinstance(tier, HeldTier)
        self.tier = tier

    def step(self, *new_requests: str) -> None:
        """End a step of the scheduler, and take what it has to tell."""
        self.manager.on_schedule_end(ScheduleEndContext(new_requests, ()))
        self.events += self.manager.take_events()
        if stats := self.manager.get_stats():
            for name in COUNTERS.keys() & stats.data["data"].keys():
                self.counts[name] = self.counts.get(name, 0) + stats.data["data"][name][()]

    def settle(self) -> None:
        """Step until nothing is in flight."""
        until_s = time.monotonic() + 20
        while self.manager.has_pending_work():
            assert time.monotonic() < until_s
            time.sleep(0.001)
            self.step()

    def compute(
        self, request: str, keys: list[OffloadKey], block_ids: list[int], *, took_s: float = 0
    ) -> None:
        """Run a request that computes these blocks of one group, or those that are missing.

        With `took_s` the tier learns that it took this long.
        """
        context = ReqContext(request)
        for position, key in enumerate(keys):
            context.set_offload_key_position(key, (position + 1) * 16)
        self.manager.on_new_request(context)
        if took_s:
            self.manager.lookup(keys[0], context)
        self.step(request)
        time.sleep(took_s)
        prepared = self.manager.prepare_store(keys, context)
        assert prepared is not None
        stored = dict(zip(keys, block_ids, strict=True))
        spec = blocks(*[stored[key] for key in prepared.keys_to_store])
        self._store(prepared.keys_to_store, spec, prepared.store_spec, context)

    def compute_groups(self, keys: list[OffloadKey], spec: GPULoadStoreSpec) -> None:
        """Run a request that computes blocks of several groups."""
        context = ReqContext("groups")
        self.manager.on_new_request(context)
        prepared = self.manager.prepare_store(keys, context)
        assert prepared is not None
        self._store(keys, spec, prepared.store_spec, context)

    def _store(
        self,
        keys: list[OffloadKey],
        spec: GPULoadStoreSpec,
        host_spec: LoadStoreSpec,
        context: ReqContext,
    ) -> None:
        self.jobs += 1
        self.worker.submit_store(self.jobs, spec, host_spec)
        self.worker.wait({self.jobs})
        self.manager.complete_store(keys, context)
        self.manager.on_request_finished(context)

    def found(self, request: str, keys: list[OffloadKey]) -> tuple[ReqContext, int]:
        """Look a prompt up as the scheduler does; return how many leading blocks are there."""
        context = ReqContext(request)
        for position, key in enumerate(keys):
            context.set_offload_key_position(key, (position + 1) * 16)
        self.manager.on_new_request(context)
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s:
            hits, waits = 0, False
            for key in keys:
                result = self.manager.lookup(key, context)
                if result is LookupResult.MISS:
                    break
                waits |= result is not LookupResult.HIT
                hits += 1
            if not waits:
                return context, hits
            self.step()
            time.sleep(0.001)
        raise AssertionError("never decided")

    def found_once(self, request: str, keys: list[OffloadKey]) -> ReqContext:
        """Look a prompt up until all of it is there: a tier that was slow rests for a while."""
        until_s = time.monotonic() + 20
        for number in count():
            context, found = self.found(f"{request}-{number}", keys)
            if found == len(keys):
                return context
            self.manager.on_request_finished(context)
            assert time.monotonic() < until_s
            time.sleep(0.5)
        raise AssertionError

    def leading(self, request: str, keys: list[OffloadKey]) -> int:
        """Return how many leading blocks are found by a request that then goes away."""
        context, found = self.found(request, keys)
        self.manager.on_request_finished(context)
        return found

    def load(self, context: ReqContext, keys: list[OffloadKey], blocks: GPULoadStoreSpec) -> None:
        """Bring blocks that were found into the primary cache, and end the request."""
        self.jobs += 1
        self.worker.submit_load(self.jobs, self.manager.prepare_load(keys, context), blocks)
        self.worker.wait({self.jobs})
        self.manager.complete_load(keys, context)
        self.manager.on_request_finished(context)

    def told(self, *, removed: bool) -> list[OffloadKey]:
        """Return the blocks that events told of."""
        assert {event.medium for event in self.events} <= {Medium.CPU, Medium.STORAGE}
        ours = [event for event in self.events if event.medium is Medium.STORAGE]
        return [key for event in ours if event.removed is removed for key in event.keys]


Start = Callable[..., tuple[Rows, Engine]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start engines of one layer over one directory; all are shut down at the end."""
    engines: list[Engine] = []

    def start(**changed: Any) -> tuple[Rows, Engine]:
        rows = make_rows(NUM_CHUNKS, PAGE_BYTES)
        spec = HostTieringSpec(make_config(str(len(engines)), tmp_path / "kv", **changed))
        engines.append(Engine(make_caches([rows], [[(0, PAGE_BYTES)]]), spec))
        return rows, engines[-1]

    HeldDirectory.ends.clear()
    yield start
    HeldDirectory.ends.set()
    for engine in engines:
        engine.worker.shutdown()
        engine.manager.shutdown()


def keys_of(prompt: int, count: int = 4, group: int = 0) -> list[OffloadKey]:
    """Name the blocks of a prompt."""
    return [make_offload_key(bytes([prompt, i]) * 16, group) for i in range(count)]


def blocks(*ids: int) -> GPULoadStoreSpec:
    """Name primary blocks of a single group."""
    return GPULoadStoreSpec(list(ids), group_sizes=[len(ids)], block_indices=[0])


def files(tmp_path: Path) -> list[Path]:
    """List the files of KV, first block first: it counts as used last."""
    found = list((tmp_path / "kv").rglob("*.kv"))
    return sorted((one for one in found if one.is_file()), key=lambda one: -one.stat().st_mtime_ns)


def test_another_engine_gets_what_one_computed(start: Start, tmp_path: Path) -> None:
    """Its KV comes byte for byte, without a copy of the region's name left in /dev/shm."""
    rows, first = start()
    want = rows.view()[[3, 1, 2, 0]].clone()
    first.compute("a", keys_of(1), [3, 1, 2, 0])
    first.settle()
    assert len(files(tmp_path)) == 4
    assert sorted(first.told(removed=False)) == keys_of(1)

    rows, second = start()
    context, found = second.found("b", keys_of(1))
    assert found == 4
    second.load(context, keys_of(1), blocks(8, 9, 10, 11))
    assert torch.equal(rows.view()[8:12], want)
    second.step()
    assert sorted(second.told(removed=False)) == keys_of(1)
    assert second.leading("c", keys_of(2)) == 0
    assert not list(Path("/dev/shm").glob("vllm_offload_warmturn-test-*"))


def test_an_engine_that_cannot_start_leaves_no_memory_taken(tmp_path: Path) -> None:
    """Neither with a misspelt option of a tier, nor if it ends before there is a scheduler."""
    taken = Path("/dev/shm")
    caches = make_caches([make_rows(NUM_CHUNKS, PAGE_BYTES)], [[(0, PAGE_BYTES)]])
    for has_manager in (True, False):
        spec = HostTieringSpec(make_config("bad", tmp_path / "kv", tier={"max_byte": 1}))
        worker = spec.get_worker(caches)
        name = f"vllm_offload_{spec.config.engine_id}.mmap"
        assert (taken / name).exists()
        if has_manager:
            with pytest.raises(TypeError, match="max_byte"):
                spec.get_manager()
            assert not (taken / name).exists()
        worker.shutdown()
        assert not (taken / name).exists()


def test_what_is_not_there_is_told_once(start: Start, tmp_path: Path) -> None:
    """So that a router which believes in blocks that are gone learns better."""
    _, first = start()
    first.compute("a", keys_of(1), [0, 1, 2, 3])
    first.settle()
    files(tmp_path)[2].unlink()
    _, second = start()
    assert second.leading("b", keys_of(1)) == 2
    second.settle()
    second.step()
    assert second.told(removed=True) == [keys_of(1)[2]]


def test_what_was_missing_is_looked_for_anew(start: Start) -> None:
    """By the next request, though the one that missed it still runs."""
    first, second = start()[1], start()[1]
    context, found = second.found("a", keys_of(1))
    assert found == 0
    second.step("a")
    first.compute("b", keys_of(1), [0, 1, 2, 3])
    first.settle()
    assert second.leading("c", keys_of(1)) == 4
    second.manager.on_request_finished(context)


def test_groups_and_chunks_of_several_blocks_come_back(tmp_path: Path) -> None:
    """Two groups over three tensors, one shared and padded, in chunks of two blocks."""

    def make(name: str) -> tuple[list[Rows], Engine]:
        rows = [make_rows(12, 509), make_rows(12, 1021, gap=64), make_rows(12, 511)]
        caches = make_caches(rows, [[(0, 509), (1, 1000)], [(2, 511), (1, 1021)]])
        config = make_config(
            name,
            tmp_path / "kv",
            groups=tuple(OffloadingGroupConfig(16, (f"layer{i}",), i) for i in range(2)),
            worker_kv_bytes_per_block=2048,
            cache=OffloadingCacheConfig(16, 2),
        )
        return rows, Engine(caches, HostTieringSpec(config))

    keys = keys_of(1, 2, group=0) + keys_of(1, 1, group=1)
    spec = GPULoadStoreSpec([4, 5, 2, 3, 7, 6], group_sizes=[4, 2], block_indices=[0, 0])
    back = GPULoadStoreSpec([8, 9, 10, 11, 0, 1], group_sizes=[4, 2], block_indices=[0, 0])
    rows, first = make("a")
    want = [
        (rows[0].view()[[4, 5, 2, 3]].clone(), rows[1].view()[[4, 5, 2, 3], :1000].clone()),
        (rows[2].view()[[7, 6]].clone(), rows[1].view()[[7, 6]].clone()),
    ]
    first.compute_groups(keys, spec)
    first.settle()
    rows, second = make("b")
    context, found = second.found("b", keys)
    assert found == 3
    second.load(context, keys, back)
    assert torch.equal(rows[0].view()[8:12], want[0][0])
    assert torch.equal(rows[1].view()[8:12, :1000], want[0][1])
    assert torch.equal(rows[2].view()[:2], want[1][0])
    assert torch.equal(rows[1].view()[:2], want[1][1])
    for engine in (first, second):
        engine.worker.shutdown()
        engine.manager.shutdown()


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"tier": {"model_identity": "other weights"}}, id="weights"),
        pytest.param({"model": OffloadingModelConfig("org/model", "bfloat16")}, id="dtype"),
        pytest.param({"kv_cache_layout": "HND"}, id="layout"),
        pytest.param({"groups": (OffloadingGroupConfig(8, ("layer",), 0),)}, id="block size"),
        pytest.param({"groups": (OffloadingGroupConfig(16, ("other",), 0),)}, id="layers"),
        pytest.param(
            {"parallel": OffloadingParallelConfig(0, 1, 2, 1, 1, 1, 0, 1, None, True)}, id="workers"
        ),
    ],
)
def test_other_kv_is_never_found(start: Start, changed: dict[str, Any]) -> None:
    """An engine whose KV means something else by the same bytes finds nothing."""
    first = start()[1]
    first.compute("a", keys_of(1), [0, 1, 2, 3])
    first.settle()
    assert start(**changed)[1].leading("b", keys_of(1)) == 0
    assert start()[1].leading("c", keys_of(1)) == 4


@pytest.mark.parametrize("damage", [b"", b"\xff" * 100, None], ids=["empty", "other", "gone"])
def test_a_damaged_block_ends_the_prefix(
    start: Start, tmp_path: Path, damage: bytes | None
) -> None:
    """The blocks before it come, it's removed, counted and told, and later stored again."""
    first = start()[1]
    first.compute("a", keys_of(1), [0, 1, 2, 3])
    first.settle()
    third = files(tmp_path)[2]
    if damage is None:
        third.unlink()
    else:
        third.write_bytes(damage)

    rows, second = start()
    second.tier.held.delay_s = 0.01  # the lookups come before the reads
    context, found = second.found("b", keys_of(1))
    assert found == 2
    second.load(context, keys_of(1)[:2], blocks(8, 9))
    assert torch.equal(rows.view()[8:10], rows.view()[:2])
    second.settle()
    second.step()
    if damage is not None:
        assert second.counts[DAMAGED] == 1
    assert set(second.told(removed=True)) == {keys_of(1)[2]}
    assert not third.exists()
    second.compute("c", keys_of(1), [0, 1, 2, 3])
    second.settle()
    assert third.exists()


def test_a_full_disk_costs_nothing_but_the_copy(start: Start) -> None:
    """Blocks that can't be written are counted; the CPU tier has them, and nothing stays pinned."""
    engine = start()[1]
    engine.tier.held.is_full = True
    for prompt in range(8):
        engine.compute(f"a{prompt}", keys_of(prompt), [0, 1, 2, 3])
        engine.settle()
    engine.step()
    assert engine.counts[NOT_STORED] == 32
    assert engine.leading("b", keys_of(7)) == 4
    assert engine.told(removed=False) == []


def test_room_is_made_and_told(start: Start, tmp_path: Path) -> None:
    """Beyond its bound the oldest blocks go, with events and a count, whoever stored them."""
    bound = {"tier": {"max_bytes": 8 * (CHUNK_BYTES + 200)}}
    first, second = start(**bound)[1], start(**bound)[1]
    first.compute("a", keys_of(1), [0, 1, 2, 3])
    first.settle()
    time.sleep(0.01)
    second.compute("b", keys_of(2), [0, 1, 2, 3])
    second.settle()
    until_s = time.monotonic() + 20
    while EVICTED not in second.counts and time.monotonic() < until_s:
        list(second.tier.get_finished_jobs())  # room is made after the blocks were written
        second.step()
    gone = second.told(removed=True)
    assert second.counts[EVICTED] == len(gone) > 0
    # A prompt's end goes before its beginning.
    assert sorted(gone) == sorted(keys_of(1)[-len(gone) :])
    assert len(files(tmp_path)) == 8 - len(gone)
    assert start(**bound)[1].leading("c", keys_of(1)) == 4 - len(gone)


def test_a_tier_that_hangs_is_given_up_and_left_alone_for_a_while(start: Start) -> None:
    """Neither lookups nor reads are waited for; then the tier rests, and is used again."""
    rows, first = start()
    want = rows.view()[:8].clone()
    first.compute("a", keys_of(1, 8), [*range(8)])
    first.settle()
    rows, second = start()
    second.compute("b", keys_of(9, 16), [*range(16)], took_s=1.6)  # 0.1 s per block
    second.settle()
    rows.view()[16:] = 0

    second.tier.held.delay_s = 1.0
    began_s = time.monotonic()
    assert second.leading("c", keys_of(1, 8)) == 0
    waited_s = time.monotonic() - began_s
    assert 0.08 <= waited_s < 0.9
    second.tier.held.delay_s = 0.0
    assert second.leading("d", keys_of(1, 8)) == 0
    time.sleep(1.5)

    second.tier.held.slow_keys = keys_of(1, 8)  # lookups are quick, reads hang
    assert second.leading("e", keys_of(1, 8)) == 0
    second.tier.held.slow_keys = ()
    time.sleep(2.5)

    # Nothing that came late is in the CPU tier's memory.
    context = second.found_once("g", keys_of(1, 8))
    second.load(context, keys_of(1, 8), blocks(*range(16, 24)))
    assert torch.equal(rows.view()[16:24], want)


def test_what_was_read_before_it_got_slow_is_used(start: Start) -> None:
    """The rest is a miss, and counted."""
    first = start()[1]
    first.compute("a", keys_of(1, 12), [*range(12)])
    first.settle()
    rows, second = start()
    second.compute("b", keys_of(9, 16), [*range(16)], took_s=0.8)  # 0.05 s per block
    second.settle()
    want = rows.view()[:8].clone()
    second.tier.held.slow_keys = keys_of(1, 12)[8:]
    context, found = second.found("c", keys_of(1, 12))
    assert found == 8
    second.load(context, keys_of(1, 12)[:8], blocks(*range(8, 16)))
    assert torch.equal(rows.view()[8:16], want)
    second.step()
    assert second.counts[ABANDONED] == 4


def make_older(tmp_path: Path) -> None:
    """Let all that is there have been used a minute earlier."""
    for path in files(tmp_path):
        os.utime(path, ns=(0, path.stat().st_mtime_ns - 60 * 10**9))


def test_a_session_keeps_its_beginning(start: Start, tmp_path: Path) -> None:
    """Room for a turn's own blocks is made by others, however late its first ones are marked."""
    engine = start(tier={"max_bytes": 12 * (CHUNK_BYTES + 200)})[1]
    engine.compute("turn 1", keys_of(1, 2), [0, 1])
    engine.settle()
    make_older(tmp_path)
    engine.compute("other", keys_of(2, 8), [*range(8)])
    engine.settle()
    engine.tier.held.hangs = ["touch"]
    engine.compute("turn 2", keys_of(1, 4), [0, 1, 2, 3])  # finds the first two in CPU memory
    engine.settle()
    assert len(files(tmp_path)) < 12
    assert engine.tier.held.has(keys_of(1, 4)) == [True] * 4
    assert engine.tier.held.has(keys_of(2, 8))[-1] is False


def test_a_turn_that_runs_keeps_its_beginning(start: Start, tmp_path: Path) -> None:
    """Another engine sees that it's in use once it's scheduled, and not only when it's over."""
    bound = {"tier": {"max_bytes": 12 * (CHUNK_BYTES + 200)}}
    first, second = start(**bound)[1], start(**bound)[1]
    first.compute("turn 1", keys_of(1, 2), [0, 1])
    first.settle()
    make_older(tmp_path)
    second.compute("other", keys_of(2, 8), [*range(8)])
    second.settle()
    context, found = first.found("turn 2", keys_of(1, 2))
    assert found == 2
    old_ns = files(tmp_path)[-1].stat().st_mtime_ns
    first.step("turn 2")
    wait_until(lambda: files(tmp_path)[-1].stat().st_mtime_ns != old_ns)
    second.compute("another", keys_of(3, 4), [*range(4)])
    second.settle()
    assert len(files(tmp_path)) < 14
    assert first.tier.held.has(keys_of(1, 2)) == [True, True]
    first.manager.on_request_finished(context)


def test_stores_that_wait_pin_a_share_of_the_cpu_tier_only(start: Start) -> None:
    """While the disk is slow, what comes beyond that share is dropped and counted."""
    engine = start()[1]
    engine.tier.held.delay_s = 0.3
    for prompt in range(3):
        engine.compute(f"a{prompt}", keys_of(prompt, 8), [*range(8)])
    engine.settle()
    engine.step()
    assert engine.counts[NOT_STORED] == 16
    assert sorted(engine.told(removed=False)) == keys_of(0, 8)


def test_marking_blocks_as_used_delays_no_store(start: Start) -> None:
    """While the blocks of many requests are marked slowly, new ones are written."""
    engine = start()[1]
    engine.tier.held.touch_s = 1.0
    for request in range(6):
        engine.found(f"a{request}", keys_of(1))
        engine.step(f"a{request}")
        engine.manager.on_request_finished(ReqContext(f"a{request}"))
    began_s = time.monotonic()
    engine.compute("b", keys_of(2), [0, 1, 2, 3])
    engine.settle()
    assert time.monotonic() - began_s < 0.9
    engine.tier.held.touch_s = 0.0


def test_what_was_only_copied_is_not_counted_as_computed() -> None:
    """A prompt found in GPU memory up to its last blocks is stored whole, if it's not elsewhere."""
    context = ReqContext("a")
    keys = keys_of(1, 20)
    for position, key in enumerate(keys):
        context.set_offload_key_position(key, (position + 1) * 16)
    request = TierRequest(context)
    request.note_asked(keys[17])
    request.note_asked(keys[18])
    request.note_scheduled(1.0)
    request.note_stored(keys[:17], 1.5)
    assert (request.computed, request.computed_s) == (0, 0.0)
    request.note_stored(keys[10:], 3.0)
    assert (request.computed, request.computed_s) == (3, 2.0)


def test_an_answer_tells_nothing_of_how_fast_prompts_are_computed() -> None:
    """Else who writes long answers slowly would wait for a slow disk that much longer."""
    context = ReqContext("a")
    keys = keys_of(1, 60)
    for position, key in enumerate(keys[:20]):
        context.set_offload_key_position(key, (position + 1) * 16)
    request = TierRequest(context)
    request.note_asked(keys[0])
    request.note_scheduled(1.0)
    request.note_stored(keys[:20], 2.0)
    for position, key in enumerate(keys[20:], 20):
        context.set_offload_key_position(key, (position + 1) * 16)
        request.note_stored([key], float(position))
    assert (request.computed, request.computed_s) == (20, 1.0)


def test_a_load_is_timed_without_those_before_it() -> None:
    """As their sum tells how fast the tier is, also when many prompts are fetched at once."""
    block = b"\1" * 100
    loads = TierLoads(Mock(load=lambda *_: block), memoryview(bytearray(100)), 100)
    jobs = [
        TransferJob(number, keys_of(number, 1), np.zeros(1, np.int32), True, ReqContext("a"), 10.0)
        for number in range(2)
    ]
    for job in jobs:
        loads.submit(TierJob(job, list(job.keys), 10.0), TierRequest(job.req_context))
    until_s = time.monotonic() + 20
    took_s: list[float | None] = []
    while len(took_s) < 2 and time.monotonic() < until_s:
        took_s += [load.result(13.0, 100).transfer_time for load in loads.take_ended(13.0, None)]
    loads.shutdown()
    assert took_s == [3.0, 0.0]


@pytest.mark.parametrize("way", ["load", "store"])
def test_the_scheduler_runs_while_a_block_is_copied(way: str) -> None:
    """Large blocks are copied without the interpreter's lock, in both directions."""
    size = 1 << 28
    chunks, payload = memoryview(bytearray(size)), memoryview(b"\1" * size)
    files: Any = SimpleNamespace(load=lambda *_: payload, store=lambda *_: None)
    loads, stores = TierLoads(files, chunks, size), TierStores(files, chunks, size, 1)
    move = loads._load if way == "load" else stores._store
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(60)  # the lock goes to another thread only if it's let go
    try:
        for _ in range(5):
            job = TierJob(Mock(), keys_of(1, 1), 0.0)
            thread = threading.Thread(target=move, args=(job, 0, 0, 0))
            thread.start()
            ran_meanwhile = not job.ended
            thread.join()
            assert job.ended == 1
            if ran_meanwhile:
                break
    finally:
        sys.setswitchinterval(before_s)
        loads.shutdown()
        stores.shutdown()
    assert ran_meanwhile
    assert (way == "load") == (chunks[-1] == 1)


@pytest.mark.parametrize("error", [MemoryError(), ValueError()])
def test_a_job_ends_whatever_goes_wrong(error: Exception) -> None:
    """Not only what is expected of a disk: nobody waits for a block that will never be moved."""

    def fail(*_: object) -> None:
        raise error

    files: Any = SimpleNamespace(load=fail, store=fail)
    memory = (files, memoryview(bytearray(200)), 100)
    loads, stores = TierLoads(*memory), TierStores(*memory, 2)
    ids = np.arange(2, dtype=np.int32)
    job = TransferJob(0, keys_of(1, 2), ids, True, ReqContext("a"), 0.0)
    load, store = TierJob(job, keys_of(1, 2), 0.0), TierJob(job, keys_of(1, 2), 0.0)
    loads.submit(load, TierRequest(job.req_context))
    assert stores.submit(store, TierRequest(job.req_context))
    ended: list[TierJob] = []
    until_s = time.monotonic() + 20
    while len(ended) < 2 and time.monotonic() < until_s:
        ended += [*loads.take_ended(0.0, None), *stores.take_ended(0.0)]
    loads.shutdown()
    stores.shutdown()
    assert [job.is_over for job in ended] == [True, True]
    assert [job.failed for job in ended] == [keys_of(1, 2)] * 2
    assert [job.error for job in ended] == [error] * 2


def no_patience(engine: Engine) -> HeldTier:
    """Let an engine's tier wait 50 ms, and then rest no longer than its threads hang."""
    engine.tier._patience._pace.measured(16, 0.016)
    engine.tier._patience._rest = Rest(0.0)
    return engine.tier


@pytest.mark.parametrize("call", ["look", "load"])
def test_little_waits_for_a_disk_that_hangs(start: Start, call: str) -> None:
    """However long it hangs and however many requests come, which are misses; then all is well."""
    first = start()[1]
    for prompt in range(1, 8):
        first.compute(f"a{prompt}", keys_of(prompt), [0, 1, 2, 3])
        first.settle()
    second = start()[1]
    tier = no_patience(second)
    tier.held.hangs = [call]
    for prompt in range(1, 8):
        assert second.leading(f"b{prompt}", keys_of(prompt)) == 0
    assert len(tier._lookups._lookup_state) <= 8
    assert tier._loads._threads.num_waiting <= 4
    tier.held.hangs = ()
    tier.held.ends.set()
    wait_until(lambda: second.leading("c", keys_of(7)) >= 4)


def test_few_stores_wait_for_a_disk_that_hangs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that took too long count, too, as long as threads hang in them."""
    monkeypatch.setattr(tier_stores, "TIMEOUT_S", 0.02)
    engine = start()[1]
    engine.tier.held.hangs = ["store"]
    for prompt in range(12):
        engine.compute(f"a{prompt}", keys_of(prompt), [0, 1, 2, 3])
        engine.settle()
        time.sleep(0.03)
    engine.step()
    assert engine.counts[NOT_STORED] == 48
    assert engine.tier._stores._threads.num_waiting <= 8  # a quarter of the CPU tier


@pytest.mark.parametrize("works", [True, False])
def test_only_a_disk_that_hangs_gets_no_new_stores(works: bool) -> None:
    """One that is slow goes on with those that come, though old ones are given up."""
    go = threading.Semaphore(0)
    files: Any = SimpleNamespace(store=lambda *_: go.acquire(timeout=20))
    stores = TierStores(files, memoryview(bytearray(800)), 100, 100)

    def submit(number: int, now_s: float) -> bool:
        ids = np.arange(8, dtype=np.int32)
        job = TransferJob(number, keys_of(number, 8), ids, False, ReqContext("a"), now_s)
        store = TierJob(job, keys_of(number, 8), now_s)
        return stores.submit(store, TierRequest(job.req_context))

    assert submit(1, 100.0)
    assert submit(2, 100.0)
    if works:
        go.release()
        wait_until(lambda: stores._num_tried > 0)
    assert stores.take_ended(120.0) == []
    assert len(stores.take_ended(131.0)) == 2
    assert submit(3, 132.0) is works
    stores.give_up()
    go.release(100)
    stores.shutdown()


def test_the_engine_starts_while_the_directory_hangs(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, until it answers."""
    monkeypatch.setattr(tier_directory, "OPEN_S", 0.1)
    first = start()[1]
    first.compute("a", keys_of(1), [0, 1, 2, 3])
    first.settle()
    monkeypatch.setattr(HeldDirectory, "hangs", ["open"])
    began_s = time.monotonic()
    second = start()[1]
    assert second.leading("b", keys_of(1)) == 0
    assert time.monotonic() - began_s < 20
    HeldDirectory.ends.set()
    wait_until(lambda: second.leading("c", keys_of(1)) >= 4)


def test_an_engine_ends_while_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for all threads at once, and its memory goes though they still hang."""
    monkeypatch.setattr(shared_tier, "SHUTDOWN_S", 1.0)
    caches = make_caches([make_rows(NUM_CHUNKS, PAGE_BYTES)], [[(0, PAGE_BYTES)]])
    engine = Engine(caches, HostTieringSpec(make_config("end", tmp_path / "kv")))
    engine.compute("a", keys_of(1), [0, 1, 2, 3])
    engine.settle()
    engine.manager.reset_cache()
    HeldDirectory.ends.clear()
    engine.tier.held.hangs = ["look", "load", "store", "touch"]
    context = ReqContext("b")
    engine.manager.on_new_request(context)
    engine.manager.lookup(keys_of(1)[0], context)
    engine.compute("c", keys_of(2), [0, 1, 2, 3])
    region = engine.manager.primary_tier._mmap_region
    memory = region.mmap_obj
    assert memory is not None
    time.sleep(0.1)
    began_s = time.monotonic()
    engine.worker.shutdown()
    engine.manager.shutdown()
    took_s = time.monotonic() - began_s
    HeldDirectory.ends.set()
    assert memory.closed
    assert took_s < 2.5


def test_the_engine_starts_without_the_directory(start: Start, tmp_path: Path) -> None:
    """One that cannot be made is logged; every block is a miss and not stored."""
    (tmp_path / "kv").write_bytes(b"in the way")
    with pytest.raises(OSError, match="exist"):
        KvDirectory(tmp_path / "kv", "n", 1, 1).open()
    engine = start()[1]
    engine.compute("a", keys_of(1), [0, 1, 2, 3])
    engine.settle()
    engine.step()
    assert engine.counts[NOT_STORED] == 4
    assert engine.leading("b", keys_of(2)) == 0


def test_a_reset_leaves_the_memory_alone(start: Start) -> None:
    """Jobs in flight end as failed, and the next request finds the files."""
    engine = start()[1]
    engine.tier.held.delay_s = 0.1
    engine.compute("a", keys_of(1), [0, 1, 2, 3])
    engine.manager.reset_cache()
    assert not engine.manager.has_pending_work()
    engine.tier.held.delay_s = 0.0
    engine.compute("b", keys_of(1), [0, 1, 2, 3])
    engine.settle()
    engine.manager.reset_cache()
    assert engine.leading("c", keys_of(1)) == 4

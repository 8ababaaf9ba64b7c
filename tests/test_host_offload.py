"""The CPU tier's worker moves exactly the bytes that vLLM's specs name, in order."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    TransferJob,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker import (
    OffloadingConnectorWorker,
)
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
    LoadStoreSpec,
    ReqContext,
    TransferResult,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec

from serve_app.host_blocks import BlockMatch, allocate_host
from serve_app.host_offload import HostOffloadingSpec
from serve_app.host_worker import HostOffloadingWorker

Bytes = NDArray[np.int8]


@dataclass(frozen=True)
class Rows:
    """One primary tensor: `num_blocks` pages, `stride` bytes apart, from byte `start` of `raw`."""

    raw: torch.Tensor
    start: int
    stride: int
    page_bytes: int
    num_blocks: int

    def view(self) -> torch.Tensor:
        """Return the (num_blocks, page_bytes) tensor that vLLM would hand over."""
        return self.raw.as_strided((self.num_blocks, self.page_bytes), (self.stride, 1), self.start)


def make_rows(num_blocks: int, page_bytes: int, *, start: int = 0, gap: int = 0) -> Rows:
    """Make a tensor whose bytes differ from row to row, with `gap` bytes after each page."""
    stride = page_bytes + gap
    raw = torch.arange(start + num_blocks * stride, dtype=torch.int64).mul(37).to(torch.int8)
    return Rows(raw, start, stride, page_bytes, num_blocks)


def make_caches(tensors: list[Rows], groups: list[list[tuple[int, int]]]) -> CanonicalKVCaches:
    """Describe tensors and, per group, references (tensor index, bytes of a page) as vLLM does."""
    return CanonicalKVCaches(
        [CanonicalKVCacheTensor(rows.view(), rows.page_bytes) for rows in tensors],
        [[CanonicalKVCacheRef(i, n) for i, n in group] for group in groups],
    )


@contextmanager
def running(worker: HostOffloadingWorker) -> Iterator[HostOffloadingWorker]:
    """Shut the worker's thread down at the end."""
    try:
        yield worker
    finally:
        worker.shutdown()


def one_tensor(num_blocks: int = 8, page_bytes: int = 4) -> tuple[Rows, CanonicalKVCaches]:
    """Make the plainest cache: one group, one tensor, no padding."""
    rows = make_rows(num_blocks, page_bytes)
    return rows, make_caches([rows], [[(0, page_bytes)]])


def blocks(ids: list[int], first: int = 0) -> GPULoadStoreSpec:
    """Name primary blocks of a single group, the first being its request's `first`-th."""
    return GPULoadStoreSpec(ids, group_sizes=[len(ids)], block_indices=[first])


# --- any layout, against a model that knows only bytes ---


@dataclass(frozen=True)
class Run:
    """Consecutive blocks of one group's request: block `ids[i]` is its `first + i`-th."""

    first: int
    ids: list[int]


@dataclass(frozen=True)
class Case:
    """A layout, the runs stored (one a group), the host chunks taken, and a part to load."""

    tensors: list[Rows]
    groups: list[list[tuple[int, int]]]
    blocks_per_chunk: int
    num_chunks: int
    stored: list[Run]
    stored_chunks: list[list[int]]
    loaded: list[Run]
    loaded_chunks: list[list[int]]
    piece_bytes: int


def chunk_indices(run: Run, blocks_per_chunk: int) -> list[int]:
    """List the request's chunks that a run touches."""
    return sorted({(run.first + i) // blocks_per_chunk for i in range(len(run.ids))})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw layouts with padding, strides and shared tensors, and transfers with empty groups."""
    blocks_per_chunk = draw(st.integers(1, 4))
    num_groups = draw(st.integers(1, 3))
    sizes = [draw(st.integers(0, 6)) for _ in range(num_groups)]
    firsts = [draw(st.integers(0, 9)) for _ in range(num_groups)]
    num_blocks = sum(sizes) + draw(st.integers(1, 4))
    tensors = [
        make_rows(
            num_blocks,
            draw(st.integers(1, 7)),
            start=draw(st.integers(0, 3)),
            gap=draw(st.integers(0, 3)),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    tensor_ids = st.integers(0, len(tensors) - 1)
    groups = [
        [
            (i, draw(st.integers(1, tensors[i].page_bytes)))
            for i in draw(st.lists(tensor_ids, min_size=1, max_size=3))
        ]
        for _ in range(num_groups)
    ]

    def place(firsts: list[int], sizes: list[int]) -> list[Run]:
        ids = draw(st.permutations(range(num_blocks)))
        ends = np.cumsum(sizes)
        return [
            Run(first, list(ids[end - size : end]))
            for first, size, end in zip(firsts, sizes, ends, strict=True)
        ]

    stored = place(firsts, sizes)
    touched = [chunk_indices(run, blocks_per_chunk) for run in stored]
    num_chunks = sum(map(len, touched)) + draw(st.integers(1, 3))
    free = iter(draw(st.permutations(range(num_chunks))))
    stored_chunks = [[next(free) for _ in indices] for indices in touched]

    skips = [draw(st.integers(0, size)) for size in sizes]
    kept = [draw(st.integers(0, size - skip)) for size, skip in zip(sizes, skips, strict=True)]
    loaded = place([f + s for f, s in zip(firsts, skips, strict=True)], kept)
    loaded_chunks = [
        [chunks[indices.index(i)] for i in chunk_indices(run, blocks_per_chunk)]
        for run, indices, chunks in zip(loaded, touched, stored_chunks, strict=True)
    ]
    return Case(
        tensors,
        groups,
        blocks_per_chunk,
        num_chunks,
        stored,
        stored_chunks,
        loaded,
        loaded_chunks,
        draw(st.sampled_from([1, 9, 1 << 20])),
    )


def primary_spec(runs: list[Run]) -> GPULoadStoreSpec:
    """Name the runs' blocks as the scheduler does."""
    return GPULoadStoreSpec(
        [block for run in runs for block in run.ids],
        group_sizes=[len(run.ids) for run in runs],
        block_indices=[run.first for run in runs],
    )


def host_spec(chunks: list[list[int]]) -> CPULoadStoreSpec:
    """Name the groups' chunks as the manager does."""
    return CPULoadStoreSpec([chunk for group in chunks for chunk in group])


def byte_pairs(
    case: Case, runs: list[Run], chunks: list[list[int]]
) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """Yield (tensor, its raw byte, host (chunk, slot, byte)) for every byte that must move."""
    for run, group_chunks, refs in zip(runs, chunks, case.groups, strict=True):
        indices = chunk_indices(run, case.blocks_per_chunk)
        for i, block in enumerate(run.ids):
            chunk_index, slot = divmod(run.first + i, case.blocks_per_chunk)
            chunk = group_chunks[indices.index(chunk_index)]
            for tensor, page_bytes in refs:
                rows = case.tensors[tensor]
                for byte in range(page_bytes):
                    raw = rows.start + block * rows.stride + byte
                    yield tensor, raw, (chunk, slot, byte)


@settings(deadline=None, max_examples=300)
@given(cases())
def test_moves_exactly_the_named_bytes(case: Case) -> None:
    """A store and a partial load into other blocks move the named bytes and touch no other."""
    caches = make_caches(case.tensors, case.groups)
    host = allocate_host(caches, case.num_chunks, case.blocks_per_chunk)
    for i, array in enumerate(host):
        array[:] = np.arange(array.size, dtype=np.int64).reshape(array.shape) * 11 + i
    raws: list[Bytes] = [rows.raw.numpy() for rows in case.tensors]
    with running(HostOffloadingWorker(caches, host, case.piece_bytes)) as worker:
        expected_host = [array.copy() for array in host]
        expected_raw = [raw.copy() for raw in raws]
        moved = 0
        for tensor, raw, at in byte_pairs(case, case.stored, case.stored_chunks):
            expected_host[tensor][at] = raws[tensor][raw]
            moved += 1
        assert worker.submit_store(1, primary_spec(case.stored), host_spec(case.stored_chunks))
        worker.wait({1})
        (result,) = worker.get_finished()
        assert (result.job_id, result.success, result.transfer_size) == (1, True, moved)
        for i in range(len(host)):
            np.testing.assert_array_equal(host[i], expected_host[i])
            np.testing.assert_array_equal(raws[i], expected_raw[i])

        for raw_bytes, expected in zip(raws, expected_raw, strict=True):
            raw_bytes[:] = expected[:] = ~raw_bytes
        for tensor, raw, at in byte_pairs(case, case.loaded, case.loaded_chunks):
            expected_raw[tensor][raw] = host[tensor][at]
        assert worker.submit_load(2, host_spec(case.loaded_chunks), primary_spec(case.loaded))
        worker.wait({2})
        for i in range(len(host)):
            np.testing.assert_array_equal(host[i], expected_host[i])
            np.testing.assert_array_equal(raws[i], expected_raw[i])


# --- single stories ---


def test_load_starts_in_the_middle_of_a_chunk() -> None:
    """Blocks 2 to 4 of a request come from the second half of one chunk and the next chunk."""
    rows, caches = one_tensor()
    want = rows.view()[[2, 3, 4]].clone()
    with running(HostOffloadingWorker(caches, allocate_host(caches, 4, 4))) as worker:
        worker.submit_store(1, blocks([0, 1, 2, 3, 4]), CPULoadStoreSpec([3, 1]))
        worker.submit_load(2, CPULoadStoreSpec([3, 1]), blocks([7, 5, 6], first=2))
        worker.wait({1, 2})
    assert torch.equal(rows.view()[[7, 5, 6]], want)


def test_an_empty_group_takes_no_chunk() -> None:
    """A group of no blocks whose index is inside a chunk leaves the chunk to the next group."""
    rows = make_rows(4, 4)
    caches = make_caches([rows], [[(0, 4)], [(0, 4)]])
    host = allocate_host(caches, 2, 2)
    with running(HostOffloadingWorker(caches, host)) as worker:
        spec = GPULoadStoreSpec([3], group_sizes=[0, 1], block_indices=[5, 0])
        worker.submit_store(1, spec, CPULoadStoreSpec([1]))
        worker.wait({1})
    np.testing.assert_array_equal(host[0][1, 0], rows.view()[3].numpy())
    assert not host[0][0].any()


def test_takes_tensors_of_inference_mode_and_any_dtype() -> None:
    """A cache made under inference mode, as vLLM does, can be loaded into by another thread."""
    with torch.inference_mode():
        tensor = torch.arange(8, dtype=torch.bfloat16).view(4, 2)
    caches = CanonicalKVCaches([CanonicalKVCacheTensor(tensor, 4)], [[CanonicalKVCacheRef(0, 4)]])
    with running(HostOffloadingWorker(caches, allocate_host(caches, 1, 1))) as worker:
        worker.submit_store(1, blocks([3]), CPULoadStoreSpec([0]))
        worker.submit_load(2, CPULoadStoreSpec([0]), blocks([0]))
        worker.wait({1, 2})
    assert tensor[0].tolist() == [6.0, 7.0]


# --- jobs ---


class HeldWorker(HostOffloadingWorker):
    """A worker whose copies wait until `release` is set, then take their usual course."""

    release: threading.Event
    started: list[int]

    def _copy(self, job_id: int, matches: list[BlockMatch], *, to_host: bool) -> TransferResult:
        self.started.append(job_id)
        assert self.release.wait(timeout=30)
        return super()._copy(job_id, matches, to_host=to_host)


def held_worker() -> tuple[Rows, HeldWorker]:
    """Make a worker of eight blocks and eight chunks that waits before each copy."""
    rows, caches = one_tensor()
    worker = HeldWorker(caches, allocate_host(caches, 8, 1))
    worker.release, worker.started = threading.Event(), []
    return rows, worker


def test_submit_and_get_finished_never_wait() -> None:
    """While a copy is stuck, submitting and asking return at once, with nothing reported."""
    _, worker = held_worker()
    with running(worker):
        worker.submit_store(1, blocks([0]), CPULoadStoreSpec([0]))
        worker.submit_store(2, blocks([1]), CPULoadStoreSpec([1]))
        assert worker.get_finished() == []
        worker.release.set()
        worker.wait({1, 2})
        assert [result.job_id for result in worker.get_finished()] == [1, 2]
        assert worker.get_finished() == []


def test_jobs_run_one_by_one_in_order() -> None:
    """A load submitted behind a store of the same chunk gets what the store wrote."""
    rows, worker = held_worker()
    want = rows.view()[2].clone()
    with running(worker):
        worker.submit_store(9, blocks([2]), CPULoadStoreSpec([5]))
        worker.submit_load(4, CPULoadStoreSpec([5]), blocks([6]))
        worker.submit_load(7, CPULoadStoreSpec([5]), blocks([2]))
        time.sleep(0.1)
        assert worker.started == [9]
        worker.release.set()
        worker.wait({7})
        assert worker.started == [9, 4, 7]
        assert [result.job_id for result in worker.get_finished()] == [9, 4, 7]
    assert torch.equal(rows.view()[6], want)
    assert torch.equal(rows.view()[2], want)


def test_wait_returns_only_when_the_copy_is_done() -> None:
    """`wait` holds its caller while the copy is stuck; jobs it doesn't know don't hold it."""
    _, worker = held_worker()
    with running(worker):
        worker.wait({404})
        worker.submit_store(1, blocks([0]), CPULoadStoreSpec([0]))
        waiter = threading.Thread(target=worker.wait, args=({1, 404},))
        waiter.start()
        waiter.join(timeout=0.1)
        assert waiter.is_alive()
        worker.release.set()
        waiter.join(timeout=30)
        assert not waiter.is_alive()
        assert [result.job_id for result in worker.get_finished()] == [1]
        worker.wait({1})


def test_results_have_bytes_and_seconds() -> None:
    """A result counts the bytes moved and the seconds of its copy, not those in the queue."""
    _, worker = held_worker()
    with running(worker):
        worker.submit_store(1, blocks([0]), CPULoadStoreSpec([0]))
        worker.submit_store(2, blocks([0, 1, 2]), CPULoadStoreSpec([0, 1, 2]))
        time.sleep(0.3)
        worker.release.set()
        worker.wait({1, 2})
        results = worker.get_finished()
    assert [result.transfer_size for result in results] == [4, 12]
    assert all(result.transfer_time and 0 < result.transfer_time < 0.3 for result in results)


def test_a_failed_copy_is_raised_not_reported() -> None:
    """A copy that raises makes `wait` and every later `get_finished` raise, naming the job."""
    _, caches = one_tensor()
    host = allocate_host(caches, 8, 1)
    host[0].flags.writeable = False
    with running(HostOffloadingWorker(caches, host)) as worker:
        worker.submit_load(1, CPULoadStoreSpec([0]), blocks([0]))
        worker.submit_store(2, blocks([0]), CPULoadStoreSpec([0]))
        worker.wait({1})
        with pytest.raises(RuntimeError, match=r"transfer 2 failed.*read-only"):
            worker.wait({2})
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"transfer 2 failed.*read-only"):
                worker.get_finished()


def test_shutdown_finishes_queued_copies() -> None:
    """Shutting down runs what is queued, may be repeated, and ends submitting."""
    rows, worker = held_worker()
    want = rows.view()[3].clone()
    worker.submit_store(1, blocks([3]), CPULoadStoreSpec([0]))
    worker.submit_load(2, CPULoadStoreSpec([0]), blocks([4]))
    worker.release.set()
    worker.shutdown()
    worker.shutdown()
    assert torch.equal(rows.view()[4], want)
    assert worker.get_finished() == []
    with pytest.raises(RuntimeError, match="shutdown"):
        worker.submit_store(3, blocks([0]), CPULoadStoreSpec([0]))


# --- what doesn't add up ---


class OtherSpec(LoadStoreSpec):
    """A place that isn't named by chunk ids."""


@pytest.mark.parametrize(
    ("primary", "host", "error"),
    [
        pytest.param(blocks([0, 1, 2]), CPULoadStoreSpec([0]), ValueError, id="a chunk missing"),
        pytest.param(blocks([0, 1]), CPULoadStoreSpec([0, 1]), ValueError, id="a chunk too many"),
        pytest.param(blocks([0, 1], 1), CPULoadStoreSpec([0]), ValueError, id="starts mid-chunk"),
        pytest.param(blocks([], 1), CPULoadStoreSpec([0]), ValueError, id="chunk for no block"),
        pytest.param(
            GPULoadStoreSpec([0], group_sizes=[1, 0], block_indices=[0, 0]),
            CPULoadStoreSpec([0]),
            ValueError,
            id="a group too many",
        ),
        pytest.param(blocks([8]), CPULoadStoreSpec([0]), IndexError, id="no such block"),
        pytest.param(blocks([-1]), CPULoadStoreSpec([0]), IndexError, id="negative block"),
        pytest.param(blocks([0]), CPULoadStoreSpec([4]), IndexError, id="no such chunk"),
        pytest.param(blocks([0]), CPULoadStoreSpec([-1]), IndexError, id="negative chunk"),
        pytest.param(blocks([0]), OtherSpec(), TypeError, id="other medium"),
    ],
)
def test_specs_that_do_not_add_up_are_refused(
    primary: GPULoadStoreSpec, host: LoadStoreSpec, error: type[Exception]
) -> None:
    """Nothing is queued when blocks and chunks don't match each other and the cache."""
    _, caches = one_tensor()
    with running(HostOffloadingWorker(caches, allocate_host(caches, 4, 2))) as worker:
        with pytest.raises(error):
            worker.submit_store(1, primary, host)
        with pytest.raises(error):
            worker.submit_load(2, host, primary)
        worker.wait({1, 2})
        assert worker.get_finished() == []


def test_group_sizes_changed_after_the_fact_are_refused() -> None:
    """Blocks that no group claims are refused even where vLLM's own assertion is off."""
    _, caches = one_tensor()
    spec = blocks([0, 1])
    spec.group_sizes = [1]
    with (
        running(HostOffloadingWorker(caches, allocate_host(caches, 4, 2))) as worker,
        pytest.raises(ValueError, match="2 blocks in 1 chunks"),
    ):
        worker.submit_store(1, spec, CPULoadStoreSpec([0]))


@pytest.mark.parametrize(
    ("pages", "groups", "host_shapes"),
    [
        pytest.param([4], [[(0, 5)]], [(2, 1, 4)], id="reference beyond the page"),
        pytest.param([4], [[(0, 0)]], [(2, 1, 4)], id="empty reference"),
        pytest.param([4], [[(-1, 4)]], [(2, 1, 4)], id="negative tensor"),
        pytest.param([4], [[(0, 4)]], [(2, 1, 3)], id="host page too small"),
        pytest.param([4, 4], [[(0, 4)]], [(2, 1, 4)], id="host tensor missing"),
        pytest.param([4, 4], [[(0, 4)]], [(2, 1, 4), (3, 1, 4)], id="unequal chunk counts"),
        pytest.param([4, 4], [[(0, 4)]], [(2, 1, 4), (2, 2, 4)], id="unequal chunk sizes"),
        pytest.param([], [[]], [], id="no tensor"),
    ],
)
def test_layouts_that_do_not_add_up_are_refused(
    pages: list[int], groups: list[list[tuple[int, int]]], host_shapes: list[tuple[int, ...]]
) -> None:
    """A worker is not made for host memory or references that don't fit the primary cache."""
    caches = make_caches([make_rows(4, n) for n in pages], groups)
    with pytest.raises(ValueError):  # noqa: PT011  # some messages are zip's own
        HostOffloadingWorker(caches, [np.zeros(shape, np.int8) for shape in host_shapes])


def test_tensors_of_unequal_block_counts_are_refused() -> None:
    """One block id means the same block in every tensor, so all have equally many."""
    caches = make_caches([make_rows(4, 4), make_rows(5, 4)], [[(0, 4), (1, 4)]])
    with pytest.raises(ValueError, match="don't fit"):
        HostOffloadingWorker(caches, allocate_host(caches, 2, 1))


# --- memory and vLLM's own classes ---


def resident_bytes() -> int:
    """Return this process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_host_memory_grows_with_use() -> None:
    """Reserving a gibibyte takes next to nothing, reads as zeros, and storing takes its share."""
    page_bytes = 1 << 18
    _, caches = one_tensor(num_blocks=64, page_bytes=page_bytes)
    before = resident_bytes()
    host = allocate_host(caches, 4096, 1)
    assert resident_bytes() - before < 8 << 20
    with running(HostOffloadingWorker(caches, host)) as worker:
        worker.submit_store(1, blocks(list(range(64))), CPULoadStoreSpec(list(range(64))))
        worker.wait({1})
    assert 12 << 20 < resident_bytes() - before < 64 << 20
    assert not host[0][4095].any()


def make_config(cpu_bytes_to_use: int, page_bytes: int, blocks_per_chunk: int) -> OffloadingConfig:
    """Make the config that vLLM derives for one group of one layer."""
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(16, ("layer",), 0),),
        worker_kv_bytes_per_block=page_bytes,
        enable_kv_cache_events=False,
        extra_config={"cpu_bytes_to_use": cpu_bytes_to_use},
        engine_id="engine",
        model=OffloadingModelConfig("model", "float32"),
        cache=OffloadingCacheConfig(16, blocks_per_chunk),
        parallel=OffloadingParallelConfig(
            rank=0,
            world_size=1,
            tp_size=1,
            pp_size=1,
            pcp_size=1,
            dcp_size=1,
            data_parallel_index=0,
            data_parallel_size=1,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
        ),
        replicated_layout=True,
    )


def test_manager_and_worker_agree_on_chunks() -> None:
    """Chunks that vLLM's manager hands out for a store give the KV back when it loads them."""
    rows, caches = one_tensor(num_blocks=8, page_bytes=4096)
    spec = HostOffloadingSpec(make_config(5 * 8192, 4096, 2))
    assert not spec.replicated_layout
    manager = spec.get_manager()
    context = ReqContext("request")
    keys = [make_offload_key(bytes([i]) * 32, 0) for i in range(2)]
    want = rows.view()[:4].clone()
    with running(spec.get_worker(caches)) as worker:
        assert spec.get_worker(caches) is worker
        manager.on_new_request(context)
        prepared = manager.prepare_store(keys, context)
        assert prepared is not None
        worker.submit_store(1, blocks([0, 1, 2, 3]), prepared.store_spec)
        worker.wait({1})
        manager.complete_store(keys, context)
        worker.submit_load(2, manager.prepare_load(keys, context), blocks([4, 5, 6, 7]))
        worker.wait({2})
        manager.complete_load(keys, context)
        # The last of the spec's five chunks exists too.
        worker.submit_store(3, blocks([0]), CPULoadStoreSpec([4]))
        with pytest.raises(IndexError):
            worker.submit_store(4, blocks([0]), CPULoadStoreSpec([5]))
    assert torch.equal(rows.view()[4:], want)


def test_too_little_memory_is_refused() -> None:
    """A tier without room for one chunk fails at start instead of never storing anything."""
    with pytest.raises(ValueError, match="cpu_bytes_to_use=8191"):
        HostOffloadingSpec(make_config(8191, 4096, 2))


def test_connector_flushes_a_store_before_its_block_is_reused() -> None:
    """The connector submits a step's store in the next step, and waits for it when told to."""
    rows, caches = one_tensor(num_blocks=4, page_bytes=4096)
    spec = HostOffloadingSpec(make_config(8 * 4096, 4096, 1))
    # The connector reads both other arguments only to describe caches, given here by hand.
    connector = OffloadingConnectorWorker(spec, None, None)  # type: ignore[arg-type]
    connector.worker = spec.get_worker(caches)
    want = rows.view()[1].clone()
    store = TransferJob("a", blocks([1]), CPULoadStoreSpec([3]))
    load = TransferJob("b", CPULoadStoreSpec([3]), blocks([2]))

    step = OffloadingConnectorMetadata(load_jobs={}, store_jobs={1: store}, jobs_to_flush=set())
    connector.handle_preemptions(step)
    connector.start_kv_transfers(step)
    connector.prepare_store_kv(step)
    assert connector.get_finished(set()) == (set(), set())

    step = OffloadingConnectorMetadata(load_jobs={2: load}, store_jobs={}, jobs_to_flush={1})
    connector.handle_preemptions(step)
    rows.view()[1] = 0
    connector.start_kv_transfers(step)
    connector.worker.wait({2})
    assert connector.get_finished(set()) == (set(), {"b"})
    meta = connector.build_connector_worker_meta()
    assert meta is not None
    assert meta.completed_jobs == {1: 1, 2: 1}
    connector.shutdown()
    assert torch.equal(rows.view()[2], want)

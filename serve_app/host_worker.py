"""Copies of KV blocks between the primary cache and host memory, on vLLM's CPU build.

Source of the contract: vLLM 0.32, v1/kv_offload/base.py (interfaces), cpu/gpu_worker.py (blocks and
chunks), distributed/kv_transfer/kv_connector/v1/offloading/worker.py (who calls when).
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from vllm.v1.kv_offload import base

from serve_app.host_blocks import BlockMatch, match_blocks


class HostOffloadingWorker(base.OffloadingWorker):
    """Copies KV blocks between the primary cache and host memory, on one background thread.

    Jobs run one by one as submitted. A store may read blocks during the next step's forward: vLLM
    submits a step's stores when the next step starts, which on a CPU is after all its KV was
    written; the request itself then writes only behind its full blocks; and before a block is
    zeroed or given away, the connector calls `wait` for its store (`jobs_to_flush`).

    vLLM takes no failed transfer, so a copy that raised is never a result: `wait` for it, and
    `get_finished` from then on, raise RuntimeError. For one calling thread.
    """

    def __init__(
        self,
        kv_caches: base.CanonicalKVCaches,
        host: Sequence[NDArray[np.int8]],
        piece_bytes: int = 8 << 20,
    ) -> None:
        """Keep chunks in `host`, shaped as by `allocate_host`; `piece_bytes` bounds a buffer.

        Rows may be strided, the bytes of a page not. Raises ValueError if sizes don't add up.
        """
        # numpy, as torch would copy on OpenMP threads against the forward's own, and refuses to
        # write inference-mode tensors from another thread.
        caches = [(t.tensor.view(torch.int8), t.page_size_bytes) for t in kv_caches.tensors]
        sides = [(t.view(len(t), n).numpy(), h) for (t, n), h in zip(caches, host, strict=True)]
        refs = [[(r.tensor_idx, r.page_size_bytes) for r in g] for g in kv_caches.group_data_refs]
        limits = {(len(p), *h.shape[:2]) for p, h in sides}
        if len(limits) != 1 or not all(
            i >= 0 and 0 < n <= sides[i][0].shape[1] == sides[i][1].shape[2]
            for i, n in chain.from_iterable(refs)
        ):
            shapes = [(p.shape, h.shape) for p, h in sides]
            msg = f"primary and host memory of shapes {shapes} don't fit each other or refs {refs}"
            raise ValueError(msg)
        ((self._num_blocks, self._num_chunks, self._blocks_per_chunk),) = limits
        # Per group and reference: both sides, without the padding of a page.
        self._pages = [[(sides[i][0][:, :n], sides[i][1][:, :, :n]) for i, n in g] for g in refs]
        self._piece_bytes = piece_bytes
        self._jobs: dict[int, Future[base.TransferResult]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kv-host-copy")

    def submit_store(
        self, job_id: int, src_spec: base.GPULoadStoreSpec, dst_spec: base.LoadStoreSpec
    ) -> bool:
        """Queue a copy of primary blocks to host chunks; raises if the specs don't add up."""
        return self._submit(job_id, src_spec, dst_spec, to_host=True)

    def submit_load(
        self, job_id: int, src_spec: base.LoadStoreSpec, dst_spec: base.GPULoadStoreSpec
    ) -> bool:
        """Queue a copy of host chunks to primary blocks; raises if the specs don't add up."""
        return self._submit(job_id, dst_spec, src_spec, to_host=False)

    def _submit(
        self,
        job_id: int,
        primary: base.GPULoadStoreSpec,
        host: base.LoadStoreSpec,
        *,
        to_host: bool,
    ) -> bool:
        if not isinstance(host, base.BlockIDsLoadStoreSpec):
            raise TypeError(host)
        if len(primary.group_sizes) != len(self._pages):
            msg = f"{len(primary.group_sizes)} groups given, the cache has {len(self._pages)}"
            raise ValueError(msg)
        for spec, count in ((primary, self._num_blocks), (host, self._num_chunks)):
            # numpy takes a negative id for one counted from the end
            if np.any((spec.block_ids < 0) | (spec.block_ids >= count)):
                msg = f"ids {spec} are not all below {count}"
                raise IndexError(msg)
        matches = match_blocks(primary, host, self._blocks_per_chunk)
        self._jobs[job_id] = self._thread.submit(self._copy, job_id, matches, to_host=to_host)
        return True

    def get_finished(self) -> list[base.TransferResult]:
        """Return the results of jobs done since the last call, oldest first; never waits."""
        done = {job_id: job for job_id, job in self._jobs.items() if job.done()}
        results = [_result(job_id, job) for job_id, job in done.items()]
        self._jobs = {job_id: job for job_id, job in self._jobs.items() if job_id not in done}
        return results

    def wait(self, job_ids: set[int]) -> None:
        """Block until these jobs, if known, are done; `get_finished` still reports them."""
        for job_id in job_ids & self._jobs.keys():
            _result(job_id, self._jobs[job_id])

    def shutdown(self) -> None:
        """Finish all queued copies, then let go of the memory; a later submit raises."""
        self._thread.shutdown()
        self._jobs.clear()
        self._pages = [[] for _ in self._pages]

    def _copy(
        self, job_id: int, matches: list[BlockMatch], *, to_host: bool
    ) -> base.TransferResult:
        """Copy on the background thread; the result has the bytes moved and the seconds taken."""
        start_s = time.perf_counter()
        num_bytes = 0
        for pages, match in zip(self._pages, matches, strict=True):
            for primary, host in pages:
                step = max(1, self._piece_bytes // primary.shape[1])
                for piece in (slice(i, i + step) for i in range(0, len(match.blocks), step)):
                    blocks, slots = match.blocks[piece], (match.chunks[piece], match.slots[piece])
                    if to_host:
                        host[slots] = primary[blocks]
                    else:
                        primary[blocks] = host[slots]
                num_bytes += len(match.blocks) * primary.shape[1]
        duration_s = time.perf_counter() - start_s
        return base.TransferResult(job_id, True, num_bytes, duration_s)


def _result(job_id: int, job: Future[base.TransferResult]) -> base.TransferResult:
    try:
        return job.result()
    except Exception as error:
        msg = f"KV transfer {job_id} failed, so its destination holds no valid KV: {error}"
        raise RuntimeError(msg) from error

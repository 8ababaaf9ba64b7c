"""The shared tier below the CPU tier, on vLLM's CPU build.

There the CPU tier lies in memory that the scheduler's process shares with the workers', since the
tiers below are read and written in the former.
"""

from vllm.v1.kv_offload.base import CanonicalKVCaches
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion

from serve_app.host_worker import HostOffloadingWorker
from serve_app.nameless_tiering import NamelessTieringSpec


class RegionWorker(HostOffloadingWorker):
    """A worker whose host memory is its part of the shared region."""

    def __init__(
        self, kv_caches: CanonicalKVCaches, region: SharedOffloadRegion, blocks_per_chunk: int
    ) -> None:
        """Take the region's part of this worker's rank, one row a chunk."""
        self._region = region
        host = []
        for tensor in kv_caches.tensors:
            rows = region.create_next_worker_view(tensor.page_size_bytes * blocks_per_chunk).numpy()
            host.append(rows.reshape(len(rows), blocks_per_chunk, tensor.page_size_bytes))
        super().__init__(kv_caches, host)

    def shutdown(self) -> None:
        """Finish all queued copies, then let go of the memory; a later submit raises."""
        super().shutdown()
        self._region.cleanup()


class HostTieringSpec(NamelessTieringSpec):
    """vLLM's tiers, with a worker that needs no accelerator."""

    _host_worker: RegionWorker | None = None

    def get_worker(self, kv_caches: CanonicalKVCaches) -> RegionWorker:
        """Return this process's worker; the first call makes it."""
        if self._host_worker is None:
            region = SharedOffloadRegion(
                engine_id=self.config.engine_id,
                num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            try:
                self._host_worker = RegionWorker(kv_caches, region, self.blocks_per_chunk)
            except Exception:
                region.cleanup()
                raise
        return self._host_worker

"""The CPU tier of the KV cache on vLLM's CPU build.

vLLM's `CPUOffloadingSpec` decides in the scheduler what is stored, loaded and evicted, which works
anywhere; its worker needs CUDA streams. `HostOffloadingSpec` keeps the former and replaces the
latter. Name it in `kv_connector_extra_config` (`spec_name`, `spec_module_path`).
"""

from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from serve_app.host_blocks import allocate_host
from serve_app.host_worker import HostOffloadingWorker


class HostOffloadingSpec(CPUOffloadingSpec):
    """vLLM's CPU offloading, with a worker that needs neither accelerator nor shared region."""

    def __init__(self, config: OffloadingConfig) -> None:
        """Take `cpu_bytes_to_use` (for all workers together); ValueError if it holds no chunk."""
        super().__init__(config)
        if self.num_chunks == 0:
            msg = f"cpu_bytes_to_use={self.extra_config['cpu_bytes_to_use']} holds no chunk of KV"
            raise ValueError(msg)
        self._host_worker: HostOffloadingWorker | None = None

    def _uses_shared_region(self) -> bool:
        return False

    def get_worker(self, kv_caches: base.CanonicalKVCaches) -> HostOffloadingWorker:
        """Return this process's worker; the first call makes it and reserves its host memory."""
        if self._host_worker is None:
            host = allocate_host(kv_caches, self.num_chunks, self.blocks_per_chunk)
            self._host_worker = HostOffloadingWorker(kv_caches, host)
        return self._host_worker

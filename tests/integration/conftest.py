"""One Ray cluster for all integration tests, and the application on it."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from ray import serve

from benchmarks import tiny_model
from benchmarks.live_service import TINY, free_port
from serve_app import packaged_model, serve_file
from serve_app.http_message import REPLICA_HEADER, HttpRequest
from serve_app.local_cluster import LocalCluster, deploy, local_cluster, states
from tests.otlp_receiver import OtlpReceiver, otlp_receiver

if TYPE_CHECKING:  # most tests here need not import vLLM
    from vllm.v1.engine.async_llm import AsyncLLM

ROOT = Path(__file__).parents[2]
APP = "warmturn"
BLOCK_TOKENS = 32
PRIMARY_BLOCKS = 160
MAX_MODEL_LEN = 4096
MAX_ONGOING = 8
MAX_QUEUED = 24  # Serve counts those it is just placing, too


SMALL_ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": BLOCK_TOKENS,
    "num_gpu_blocks_override": PRIMARY_BLOCKS,
    "max_model_len": MAX_MODEL_LEN,
    "gpu_memory_utilization": 0.1,
}
"""vLLM's settings for an engine with a small cache, beside those of others on this machine."""

ENGINE_ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
"""What Serve sets for a replica, for tests that start an engine themselves."""


def prepare_engine(environment: pytest.MonkeyPatch) -> None:
    """Set what the processes of an engine inherit that is started here."""
    for name, value in ENGINE_ENVIRONMENT.items():
        environment.setenv(name, value)


async def empty_caches(engine: "AsyncLLM") -> None:
    """Empty primary cache and CPU tier, as an audit may do; what runs is computed anew."""
    await engine.pause_generation(mode="keep", clear_cache=False)
    assert await engine.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    await engine.resume_generation()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, so that no file can forget to."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def tiny(smollm2: Path) -> Path:
    """A random model whose answer depends on the whole prompt."""
    if not packaged_model.is_prepared(TINY):
        tiny_model.make(TINY, smollm2)
    return TINY


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Ray on this machine; the test process is its driver."""
    with local_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def port() -> int:
    """The port for HTTP; it stays the same, since Serve's proxy cannot move."""
    return free_port()


@pytest.fixture(scope="session")
def serving(cluster: LocalCluster, port: int) -> LocalCluster:
    """The cluster, and Serve on that port, for what is not deployed through its REST API."""
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    return cluster


def configure(model: Path, port: int, engine: dict[str, Any], replicas: int) -> dict[str, Any]:
    """Return the project's own serve.yaml with a test's model, port, sizes and limits."""
    content = deepcopy(serve_file.load(ROOT / "serve.yaml"))
    content["http_options"]["port"] = port
    app = serve_file.app(content)
    app["args"] |= {"model": str(model), "kv_shared": None}
    app["args"]["engine"] |= engine
    gateway = serve_file.deployment(content, "gateway")
    gateway["user_config"]["routing"]["ttft_slo_s"] = 120  # a busy machine is no overload
    app["args"]["gateway"]["router_timeout_s"] = 5  # nor is it a silent router
    options = serve_file.deployment(content, "engine")
    options |= {
        "num_replicas": replicas,
        "max_ongoing_requests": MAX_ONGOING,
        "max_queued_requests": MAX_QUEUED,
        "graceful_shutdown_timeout_s": 5,
    }
    return content


def titled(title: str) -> list[psutil.Process]:
    """Return this test's Ray processes whose title begins so."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and " ".join(process.cmdline()).startswith(
                title
            ):
                found.append(process)
    return found


@dataclass(frozen=True, slots=True)
class Service:
    """A running application: its URL, the name of its model, and what was deployed."""

    url: str
    model: str
    content: dict[str, Any]

    def engine_metric(self, name: str) -> float:
        """Return one of vLLM's metrics, summed over the replicas."""
        states = serve.status().applications[APP].deployments["engine"].replica_states
        running = sum(count for state, count in states.items() if state == "RUNNING")
        found: dict[bytes, float] = {}
        while len(found) < running:
            replica, text = self._metrics()
            lines = [one for one in text.splitlines() if one.startswith((f"{name}{{", f"{name} "))]
            assert lines, f"no metric {name}"
            found[replica] = sum(float(line.rsplit(" ", 1)[1]) for line in lines)
        return sum(found.values())

    def _metrics(self) -> tuple[bytes, str]:
        """Return the name and all metrics of any replica."""
        handle = serve.get_deployment_handle("engine", APP).options(stream=True)
        answer: Any = handle.http.remote(HttpRequest("GET", "/metrics", b"", (), b""), None)
        start, *body = answer
        return dict(start.headers)[REPLICA_HEADER], b"".join(body).decode()

    async def settle(self, name: str, value: float, within_s: float) -> None:
        """Wait until a metric has this value; fail when it takes longer."""
        async with asyncio.timeout(within_s):
            while await asyncio.to_thread(self.engine_metric, name) != value:
                await asyncio.sleep(0.1)


@pytest.fixture(scope="session")
def receiver() -> Iterator[OtlpReceiver]:
    """Where `service` sends its spans."""
    with otlp_receiver() as running:
        yield running


@pytest.fixture(scope="session")
def service(
    cluster: LocalCluster,
    port: int,
    tiny: Path,
    receiver: OtlpReceiver,
    tmp_path_factory: pytest.TempPathFactory,
) -> Service:
    """Two replicas of the tiny model with a small primary cache and a CPU tier.

    Turns are traced and recorded.
    """
    engine = {
        "block_size": BLOCK_TOKENS,
        "num_gpu_blocks_override": PRIMARY_BLOCKS,
        "max_model_len": MAX_MODEL_LEN,
    }
    content = configure(tiny, port, engine, replicas=2)
    app = serve_file.app(content)
    recording = tmp_path_factory.mktemp("recording") / "turns.jsonl"
    app["args"] |= {"record": str(recording), "record_prompts": True}
    app["args"]["otlp_traces_endpoint"] = receiver.endpoint
    app["runtime_env"]["env_vars"]["OTEL_BSP_SCHEDULE_DELAY"] = "500"  # milliseconds
    deploy(cluster, content)
    for progress in states(cluster, APP):
        print(progress)
    return Service(f"http://127.0.0.1:{port}", tiny.name, content)

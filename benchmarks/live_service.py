"""A service of tiny replicas on this machine, for one router after another."""

import random
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import serve

from serve_app import packaged_model, serve_file
from serve_app.local_cluster import deploy, local_cluster, states

ROOT = Path(__file__).parents[1]
TINY = ROOT / "models" / "tiny"
MAX_MODEL_LEN = 4096
ENGINE_CPUS = 0.1
"""What Ray books per replica: they share this machine's cores, however many there are."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many replicas, and how much each remembers."""

    replicas: int
    blocks: int
    """Of the primary cache; there is no other tier."""
    block_size: int
    model: Path = TINY


def services(
    routers: Sequence[str], fleet: Fleet, tell: Callable[[str], None]
) -> Iterator[tuple[str, str]]:
    """Yield each router's name and its service's URL, with empty caches; one runs at a time.

    Raises:
        ValidationError: a router is not known, before anything is started.
        DeployError: a service cannot run.
    """
    port = free_port()  # Serve's proxy stays on it
    base = serve_file.load(ROOT / "serve.yaml")
    contents = {router: configure(base, router, fleet, port) for router in routers}
    for content in contents.values():
        serve_file.app_config(content)
    make_tiny_model(fleet.model)
    with local_cluster() as cluster:
        for router, content in contents.items():
            deploy(cluster, content)
            name = serve_file.app(content)["name"]
            for progress in states(cluster, name):
                tell(f"{router}: {progress}")
            yield router, f"http://127.0.0.1:{port}"
            tell(f"{router}: stopping")
            serve.delete(name)


def configure(base: dict[str, Any], router: str, fleet: Fleet, port: int) -> dict[str, Any]:
    """Return serve.yaml's content with this router, fleet and port, unchecked."""
    content = deepcopy(base)
    content["http_options"]["port"] = port
    app = serve_file.app(content)
    app["args"] |= {"model": str(fleet.model.absolute()), "router": router}
    app["args"] |= {"kv_offload_gib": 0, "kv_shared": None}
    app["args"]["engine"] |= {
        "block_size": fleet.block_size,
        "num_gpu_blocks_override": fleet.blocks,
        "max_model_len": MAX_MODEL_LEN,
    }
    engine = serve_file.deployment(content, "engine")
    engine |= {"num_replicas": fleet.replicas, "graceful_shutdown_timeout_s": 5}
    engine["ray_actor_options"] = {"num_cpus": ENGINE_CPUS}
    return content


def free_port() -> int:
    """Return a port on which nobody listens now, and which the system gives to nobody by itself.

    Ray opens hundreds of such before Serve takes its own.
    """
    while True:
        port = random.randrange(20_000, 30_000)  # noqa: S311
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def make_tiny_model(directory: Path) -> None:
    """Make the model if it is ours, and not there yet."""
    if directory != TINY or packaged_model.is_prepared(TINY):
        return
    from benchmarks import tiny_model  # it imports torch

    source = ROOT / "models" / packaged_model.NAME
    if not packaged_model.is_prepared(source):
        packaged_model.prepare(source)
    tiny_model.make(TINY, source)

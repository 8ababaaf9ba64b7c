"""A session whose replica died goes on at another one, with its KV, on real Ray."""

import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray

from serve_app import serve_file
from serve_app.http_message import REPLICA_HEADER
from serve_app.local_cluster import LocalCluster, deploy, states
from tests.integration.conftest import (
    APP,
    BLOCK_TOKENS,
    MAX_MODEL_LEN,
    Service,
    configure,
    titled,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the replicas share."""
    return tmp_path_factory.mktemp("shared") / "kv"


@pytest.fixture(scope="module")
def sharing(cluster: LocalCluster, port: int, tiny: Path, shared: Path) -> Service:
    """Two replicas with a shared tier."""
    engine = {"block_size": BLOCK_TOKENS, "max_model_len": MAX_MODEL_LEN}
    content = configure(tiny, port, engine, replicas=2)
    args = serve_file.app(content)["args"]
    args["kv_offload_gib"] = 0.25
    args["kv_shared"] = {"type": "fs", "path": str(shared), "gib": 1}
    deploy(cluster, content)
    for progress in states(cluster, APP):
        print(progress)
    return Service(f"http://127.0.0.1:{port}", tiny.name, content)


def _kill(replica: str) -> None:
    """Kill the process of a replica; it's gone when this returns."""
    before = titled(f"ray::ServeReplica:{APP}:engine")
    ray.kill(ray.get_actor(f"SERVE_REPLICA::{APP}#engine#{replica}", namespace="serve"))
    until_s = time.monotonic() + 60
    while sum(process.is_running() for process in before) == len(before):
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_the_next_turn_is_warm_elsewhere(sharing: Service, shared: Path) -> None:
    """It computes under 5 % of what the killed replica had computed."""
    lines = [f"file{i}.py defines function f{i}(x) returning x+{i}." for i in range(150)]
    messages = [{"role": "user", "content": "Read this: " + " ".join(lines)}]
    with httpx.Client(base_url=sharing.url, timeout=120) as http:

        def turn() -> tuple[str, dict[str, Any]]:
            body = {"model": "tiny", "messages": messages, "max_tokens": 8, "temperature": 0}
            headers = {"X-Session-ID": "shared-session"}
            answer = http.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200
            return answer.headers[REPLICA_HEADER.decode()], answer.json()

        first, answer = turn()
        prompt_tokens = answer["usage"]["prompt_tokens"]
        assert not answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        until_s = time.monotonic() + 30
        while len(list(shared.rglob("*/*/*.kv"))) < prompt_tokens // BLOCK_TOKENS:
            assert time.monotonic() < until_s
            time.sleep(0.1)
        _kill(first)
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "And now?"}]
        second, answer = turn()
    assert second != first
    cached_tokens = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached_tokens >= 0.95 * prompt_tokens

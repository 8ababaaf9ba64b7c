"""Clients that hang up, queues that are full, replicas and engines that die."""

import asyncio
import os
import signal
from typing import Any

import httpx
import psutil
import pytest

from serve_app.http_message import REPLICA_HEADER
from serve_app.local_cluster import LocalCluster, states
from tests.integration.conftest import APP, MAX_ONGOING, MAX_QUEUED, Service, titled

CHAT = "/v1/chat/completions"
RUNNING = "vllm:num_requests_running"
REPLACED_WITHIN_S = 400
"""Usually 30 to 50: a new engine starts beside the load."""


def _request(text: str, tokens: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    fixed = {"model": "tiny", "temperature": 0, "ignore_eos": True}
    return fixed | {"messages": messages, "max_tokens": tokens} | more


def _client(service: Service) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=service.url, timeout=120, limits=limits)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_frees_the_engine(service: Service, stream: bool) -> None:
    """Soon after the client is gone the engine runs nothing for it; all would take 20 s or more."""
    session = f"hang-up-{stream}"
    async with _client(service) as http:
        request = http.build_request(
            "POST",
            CHAT,
            json=_request("hello", 3500, stream=stream),
            headers={"X-Session-ID": session},
        )
        exchange = asyncio.create_task(http.send(request, stream=True))
        await service.settle(RUNNING, 1, within_s=10)
        if stream:
            await (await exchange).aclose()
        else:
            exchange.cancel()
    await service.settle(RUNNING, 0, within_s=5)


async def test_when_full_clients_are_told_to_come_back(service: Service) -> None:
    """Beyond what runs and waits a request gets 429 with Retry-After; the others get answers."""
    places = 2 * MAX_ONGOING + MAX_QUEUED
    async with _client(service) as http:
        posts = [
            http.post(CHAT, json=_request(f"question {number}", 60)) for number in range(places * 2)
        ]
        responses = await asyncio.gather(*posts)
    statuses = [response.status_code for response in responses]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 2 * MAX_ONGOING
    refused = next(response for response in responses if response.status_code == 429)
    assert refused.headers["retry-after"] == "2"
    assert refused.json()["error"]["code"] == 429


async def test_a_new_serve_controller_keeps_the_replicas(
    service: Service, cluster: LocalCluster
) -> None:
    """When Serve's controller dies its successor finds the replicas as they are, KV and all."""
    before = {process.pid for process in _replicas()}
    [controller] = titled("ray::ServeController")
    controller.kill()
    async with _client(service) as http, asyncio.timeout(60):
        while not titled("ray::ServeController"):
            await asyncio.sleep(0.5)
        for number in range(15):
            response = await http.post(CHAT, json=_request(f"question {number}", 2))
            assert response.status_code == 200
            await asyncio.sleep(1)
    assert {process.pid for process in _replicas()} == before
    logs = [*(cluster.log_directory / "serve").glob(f"replica_{APP}_engine_*.log")]
    assert any("CALL http OK" in log.read_text() for log in logs)


def _engine_cores(replica: psutil.Process) -> list[psutil.Process]:
    return [child for child in replica.children() if "EngineCore" in " ".join(child.cmdline())]


def _replicas() -> list[psutil.Process]:
    title = f"ray::ServeReplica:{APP}:engine"
    return [process for process in titled(title) if _engine_cores(process)]


@pytest.mark.parametrize("victim", ["replica", "engine"])
async def test_a_death_under_load_loses_nothing(
    service: Service, cluster: LocalCluster, victim: str
) -> None:
    """Requests that had not begun to answer are answered by the other replica, streams are told.

    The dead one is replaced, and nothing of it is left, in the router neither.
    """
    before = _replicas()
    assert len(before) == 2
    family = before[0].children(recursive=True)
    async with _client(service) as http:

        async def stream(number: int) -> str:
            request = _request(f"stream {number}", 300, stream=True)
            return (await http.post(CHAT, json=request)).text

        whole = [
            asyncio.create_task(http.post(CHAT, json=_request(f"whole {number}", 300)))
            for number in range(8)
        ]
        streams = [asyncio.create_task(stream(number)) for number in range(6)]
        await asyncio.sleep(1.5)
        known = await _known_to_the_router(http)
        assert len(known) == 2
        target = before[0] if victim == "replica" else _engine_cores(before[0])[0]
        os.kill(target.pid, signal.SIGKILL)
        responses = await asyncio.gather(*whole)
        assert [response.status_code for response in responses] == [200] * 8
        assert len({response.headers[REPLICA_HEADER.decode()] for response in responses}) <= 2
        ends = [text.rstrip().split("\n\n")[-1] for text in await asyncio.gather(*streams)]
        assert ends == ["data: [DONE]"] * 6
        assert (await http.get("/ready")).status_code == 200
        survivors = await _known_to_the_router(http)
        assert len(survivors) == 1
        assert survivors < known

    _gone, alive = psutil.wait_procs([before[0], *family], timeout=20)
    assert alive == []
    async with asyncio.timeout(REPLACED_WITHIN_S):
        while len(_replicas()) < 2:
            await asyncio.sleep(1)
        for _ in states(cluster, APP):
            await asyncio.sleep(0)
        async with _client(service) as http:
            while len(found := await _known_to_the_router(http)) < 2:
                await asyncio.sleep(0.5)
    assert found & known == survivors


async def _known_to_the_router(http: httpx.AsyncClient) -> set[str]:
    """Return the replicas whose blocks and load the router counts."""
    return {one["replica"] for one in (await http.get("/warmturn/replicas")).json()["replicas"]}

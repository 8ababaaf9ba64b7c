"""Replicas come as sessions outgrow their caches, and go when they are not needed any more."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import httpx
import pytest
from ray import serve

from serve_app import serve_file
from serve_app.local_cluster import LocalCluster, deploy, states
from tests.integration.conftest import APP, Service

WORDS = 400
"""Prompts of some 1,600 tokens: three fill a replica's cache, ten those of three."""

MANY, FEW = 9, 1
COME_WITHIN_S, GO_WITHIN_S = 1200.0, 400.0
"""Long, since three engines start beside those agents: on two slow cores, 80 s or more each."""

AUTOSCALING = {
    "min_replicas": 0,
    "initial_replicas": 0,
    "max_replicas": 3,
    "upscale_delay_s": 0,
    "downscale_delay_s": 0,
    "policy": {
        "policy_function": "serve_app.autoscaler:CacheAutoscaler",
        "policy_kwargs": {
            "start_s": 30,
            "window_s": 30,
            "usual_s": 20,
            "slack_ratio": 0,
            "calm_s": 8,
            "settle_s": 8,
            "drain_s": 20,
        },
    },
}


class Agents:
    """Sessions that ask the same again and again, and note what they hear."""

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self.answers: dict[int, set[str]] = {}
        self.failures: list[str] = []
        self.asked = 0
        self._http = http
        self._model = model
        self._tasks: list[asyncio.Task[None]] = []

    def resize(self, sessions: int) -> None:
        """Let so many sessions live."""
        for number in range(len(self._tasks), sessions):
            self._tasks.append(asyncio.create_task(self._live(number)))
        while len(self._tasks) > sessions:
            self._tasks.pop().cancel()

    async def _live(self, number: int) -> None:
        text = " ".join(f"{number}.{word}" for word in range(WORDS))
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 4,
            "temperature": 0,
        }
        headers = {"x-session-id": f"autoscaling-{number}"}
        while True:
            response = await self._http.post("/v1/chat/completions", json=body, headers=headers)
            self.asked += 1
            if response.status_code != 200:
                self.failures.append(response.text)
                return
            answer = response.json()["choices"][0]["message"]["content"]
            self.answers.setdefault(number, set()).add(answer)
            await asyncio.sleep(0.3)


@pytest.fixture
def scaled(service: Service, cluster: LocalCluster) -> Service:
    """The service with autoscaling, no replica and no CPU tier; nothing comes after it."""
    content = deepcopy(service.content)
    serve_file.app(content)["args"]["kv_offload_gib"] = 0
    options = serve_file.deployment(content, "engine")
    del options["num_replicas"]
    options["autoscaling_config"] = AUTOSCALING
    deploy(cluster, content)
    for progress in states(cluster, APP):
        print(progress)
    return service


def _running() -> int | None:
    """Return how many replicas run; None while any is in another state."""
    found: dict[Any, int] = serve.status().applications[APP].deployments["engine"].replica_states
    return found.get("RUNNING", 0) if set(found) <= {"RUNNING"} else None


async def _until(replicas: int, within_s: float, http: httpx.AsyncClient) -> None:
    """Wait until so many run and no others; say what was wished for if they don't."""
    began_s = time.monotonic()
    while await asyncio.to_thread(_running) != replicas:
        if time.monotonic() - began_s > within_s:
            state = (await http.get("/warmturn/replicas")).json()["router"]["autoscaling"]
            pytest.fail(f"not {replicas} replicas in {within_s:g} s: {state}")
        await asyncio.sleep(0.5)


@asynccontextmanager
async def _agents(service: Service) -> AsyncIterator[Agents]:
    async with httpx.AsyncClient(base_url=service.url, timeout=COME_WITHIN_S) as http:
        agents = Agents(http, service.model)
        try:
            yield agents
        finally:
            agents.resize(0)


async def test_replicas_follow_the_working_set(
    scaled: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    """From none to three and back to one: no request fails, no answer changes."""
    async with (
        _agents(scaled) as agents,
        httpx.AsyncClient(base_url=scaled.url, timeout=30) as http,
    ):
        began_s = time.monotonic()
        agents.resize(MANY)
        await _until(3, COME_WITHIN_S, http)
        came_s = time.monotonic() - began_s
        agents.resize(FEW)
        await _until(1, GO_WITHIN_S, http)
        went_s = time.monotonic() - began_s - came_s
        agents.resize(MANY)
        await asyncio.sleep(5)
        metrics = (await http.get("/warmturn/metrics")).text
        with capsys.disabled():
            print(f"\n0 -> 3 in {came_s:.0f} s, 3 -> 1 in {went_s:.0f} s, {agents.asked} turns")
    assert agents.failures == []
    assert [len(one) for one in agents.answers.values()] == [1] * MANY
    assert "warmturn_autoscaling_surprises_total 0.0" in metrics

"""More sessions than can run in time, on real engines: those that run go on, others get 429."""

import asyncio
import re
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import httpx
import pytest

from serve_app import serve_file
from serve_app.local_cluster import LocalCluster, deploy
from tests.integration.conftest import Service

SESSIONS = 20
NEW = 12
"""Of which most find no place while they wait: few come free, once in ten seconds."""


async def _router(http: httpx.AsyncClient) -> dict[str, Any]:
    answer = (await http.get("/warmturn/replicas")).raise_for_status()
    found: dict[str, Any] = answer.json()["router"]
    return found


async def _metrics(http: httpx.AsyncClient) -> str:
    return (await http.get("/warmturn/metrics")).raise_for_status().text


@pytest.fixture
async def overloaded(service: Service, cluster: LocalCluster) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the service while it takes every turn for a late one."""
    content = deepcopy(service.content)
    gateway = serve_file.deployment(content, "gateway")
    gateway["user_config"]["routing"] |= {
        "ttft_slo_s": 0,
        "max_late_ratio": 0,
        "max_park_s": 2,
        "session_hold_s": 3600,  # no place of another test's sessions comes free meanwhile
    }
    async with httpx.AsyncClient(base_url=service.url, timeout=120) as http:
        deploy(cluster, content)
        async with asyncio.timeout(20):
            while (await _router(http))["tunables"]["max_park_s"] != 2:
                await asyncio.sleep(0.2)
        yield http
        gateway["user_config"]["routing"] |= {"max_late_ratio": 1}
        deploy(cluster, content)
        async with asyncio.timeout(20):
            while (await _router(http))["session_limit"] is not None:
                await asyncio.sleep(0.2)
        deploy(cluster, service.content)
        async with asyncio.timeout(20):
            while (await _router(http))["tunables"]["max_park_s"] == 2:
                await asyncio.sleep(0.2)


async def _ask(http: httpx.AsyncClient, service: Service, session: str) -> httpx.Response:
    messages = [{"role": "user", "content": f"I am {session}. " * 10}]
    body = {"model": service.model, "messages": messages, "max_tokens": 2}
    return await http.post(
        "/v1/chat/completions", json=body, headers={"X-Session-ID": f"overload-{session}"}
    )


async def test_sessions_that_run_go_on(service: Service, overloaded: httpx.AsyncClient) -> None:
    """Others wait for a place, are turned away in their API's form, and told why when asked."""
    http = overloaded
    first = await asyncio.gather(*(_ask(http, service, f"old-{n}") for n in range(SESSIONS)))
    assert {answer.status_code for answer in first} == {200}
    async with asyncio.timeout(30):
        while (await _router(http))["session_limit"] is None:
            await asyncio.sleep(0.2)
    new = [asyncio.create_task(_ask(http, service, f"new-{n}")) for n in range(NEW)]
    await asyncio.sleep(0.5)
    newest = f"old-{SESSIONS - 1}"
    assert (await _ask(http, service, newest)).status_code == 200
    answers = await asyncio.gather(*new)
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(refused) >= NEW / 2
    assert {answer.status_code for answer in answers} <= {200, 429}
    assert "sessions run" in refused[0].json()["error"]["message"]
    assert int(refused[0].headers["retry-after"]) >= 1
    told = await http.get(f"/warmturn/decisions/{refused[0].headers['x-request-id']}")
    assert (told.json()["state"], told.json()["decisions"]) == ("refused", 0)
    counted = re.search(r"^warmturn_refused_turns_total (\S+)$", await _metrics(http), re.MULTILINE)
    assert counted
    assert float(counted[1]) >= len(refused)

"""Serve's request router of ours without Serve: what it tells the router actor."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from serve_app import router_actor
from serve_app.kv_router import KVRouter
from serve_app.router_actor import RouterActor
from tests.makers import DirectClient, make_report, make_turn
from tests.policies.makers import make_state


def _replicas(*names: str) -> list[Any]:
    return [
        SimpleNamespace(replica_id=SimpleNamespace(unique_id=name), max_ongoing_requests=64)
        for name in names
    ]


async def test_a_turn_that_waits_goes_to_a_replica_that_came_since(
    actor: RouterActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that it asks it says which replicas there are now."""
    monkeypatch.setattr(router_actor, "ASK_S", 0.02)
    await actor.report(make_report("r1", state=make_state("r1", total_blocks=9, free_blocks=0)))
    router: Any = KVRouter.__new__(KVRouter)
    router._client, router._timeout_s, router._silent_until_s = DirectClient(actor), 5.0, 0.0
    router._sent, router._replicas_list = Counter(), _replicas("r1")
    placing = asyncio.create_task(router._place(make_turn("q1", 1, 2)))
    await asyncio.sleep(0.05)
    assert not placing.done()
    router._replicas_list = _replicas("r1", "r2")
    async with asyncio.timeout(5):
        while not placing.done():
            await actor.report(make_report("r2"))
            await asyncio.sleep(0.01)
    assert placing.result().replica_id.unique_id == "r2"

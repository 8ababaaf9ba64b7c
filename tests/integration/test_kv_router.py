"""Serve's request router of ours, between a real handle and real replicas without engines."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from policies.tunables import Tunables
from policies.types import RequestId, SessionId
from serve_app.local_cluster import LocalCluster
from serve_app.route_request import GatewaySeat, RouteRequest
from serve_app.router_actor import RouterActor
from serve_app.router_client import NAMESPACE, RouterClient
from tests.integration.conftest import titled

APP = "without-engines"


class Replica:
    """Answers with its own name, after a while."""

    async def answer(self, turn: RouteRequest | None, after_s: float) -> tuple[str, bool]:
        """Return who it is, and whether the router actor placed this turn."""
        await asyncio.sleep(after_s)
        placed = turn is not None and turn.placement is not None
        known = placed and turn.placement.expected_cached_tokens is not None  # type: ignore[union-attr]
        return serve.get_replica_context().replica_id.unique_id, known


@pytest.fixture(scope="module")
def replicas(serving: LocalCluster) -> Iterator[DeploymentHandle[Any]]:
    """Three replicas with two places each."""
    assert serving
    router: Any = "serve_app.kv_router:KVRouter"
    deployment = serve.deployment(
        num_replicas=3,
        max_ongoing_requests=2,
        ray_actor_options={"num_cpus": 0},
        request_router_config=RequestRouterConfig(
            request_router_class=router, request_router_kwargs={"router_timeout_s": 0.5}
        ),
    )
    yield serve.run(deployment(Replica).bind(), name=APP, route_prefix=None)
    serve.delete(APP)
    ray.kill(_actor())


def _actor() -> Any:
    return ray.get_actor(RouterClient(APP).name, namespace=NAMESPACE)


async def _ask(
    handle: DeploymentHandle[Any], session: str | None, after_s: float = 0.0
) -> tuple[str, bool]:
    turn = RouteRequest(
        RequestId(uuid.uuid4().hex), "", None if session is None else SessionId(session)
    )
    answer: tuple[str, bool] = await handle.answer.remote(turn, after_s)
    return answer


@pytest.fixture
async def warm(replicas: DeploymentHandle[Any]) -> DeploymentHandle[Any]:
    """The handle, once the router actor answers."""
    async with asyncio.timeout(60):
        while not (await _ask(replicas, "warm-up"))[1]:
            await asyncio.sleep(0.2)
    return replicas


async def test_a_session_stays_together(warm: DeploymentHandle[Any]) -> None:
    """Its turns meet one replica; many sessions meet all of them."""
    homes = set()
    for session in map(str, range(12)):
        met = {(await _ask(warm, session))[0] for _ in range(3)}
        assert len(met) == 1
        homes |= met
    assert len(homes) == 3


async def test_a_killed_router_fails_no_request(warm: DeploymentHandle[Any]) -> None:
    """Meanwhile sessions go by rendezvous hashing, together; then the new actor places them.

    On a slow machine one was seen to be passed over once.
    """
    ray.kill(_actor(), no_restart=False)
    without_router = Counter[str]()
    async with asyncio.timeout(30):
        while True:
            name, by_router = await _ask(warm, "faithful")
            if not by_router:
                without_router[name] += 1
            elif without_router:
                break
            await asyncio.sleep(0.01)
    (_, most), *_ = without_router.most_common(1)
    assert without_router.total() - most <= max(1, without_router.total() // 10)


async def test_full_replicas_are_passed_over(warm: DeploymentHandle[Any]) -> None:
    """Six requests of one session fit; two more wait for a place, and get one."""
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(_ask(warm, "busy", after_s=1.0) for _ in range(8)))
    names = [name for name, _ in answers]
    assert len(set(names)) == 3


async def test_calls_that_are_no_turns_go_anywhere(warm: DeploymentHandle[Any]) -> None:
    """They need no router actor."""
    names = {(await warm.answer.remote(None, 0.0))[0] for _ in range(30)}
    assert len(names) == 3


async def test_a_router_that_fails_hangs_nothing(warm: DeploymentHandle[Any]) -> None:
    """An exception in the actor means that the turn is placed without it."""
    turn = RouteRequest(RequestId("broken"), "", None)
    turn.hashes = np.array([object()])  # not sortable into any index
    turn.prompt_tokens = "many"  # type: ignore[assignment]
    async with asyncio.timeout(10):
        _, by_router = await warm.answer.remote(turn, 0.0)
    assert not by_router


@pytest.mark.usefixtures("cluster")
async def test_a_router_that_nobody_calls_ends(tmp_path: Path) -> None:
    """For good: Ray does not restart it, and its name is free again."""
    actor: Any = ray.remote(RouterActor)
    options = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": -1, "num_cpus": 0}
    started = actor.options(name=tmp_path.name, **options).remote(idle_end_s=1.0)
    await started.configure.remote(Tunables(), None, GatewaySeat("g1", "n1", 0.0))
    async with asyncio.timeout(30):
        while True:
            try:
                ray.get_actor(tmp_path.name, namespace=NAMESPACE)
            except ValueError:
                break
            await asyncio.sleep(0.2)


async def test_a_dead_replica_is_passed_over(warm: DeploymentHandle[Any]) -> None:
    """The session that lived there is answered by another one."""
    name, _ = await _ask(warm, "survivor")
    named = ray.util.list_named_actors(all_namespaces=True)
    [actor] = [one for one in named if name in one["name"]]
    running = titled(f"ray::ServeReplica:{APP}")
    ray.kill(ray.get_actor(actor["name"], namespace=actor["namespace"]), no_restart=True)
    async with asyncio.timeout(30):
        while all(process.is_running() for process in running):
            await asyncio.sleep(0.1)
        other, _ = await _ask(warm, "survivor")
    assert other != name

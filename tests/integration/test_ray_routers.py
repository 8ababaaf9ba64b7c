"""Ray's own request routers, which can be chosen to compare ours with."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from policies.types import RequestId, SessionId
from serve_app.config import AppConfig, RouterName
from serve_app.http_message import HttpRequest
from serve_app.local_cluster import LocalCluster
from serve_app.route_request import RouteRequest
from serve_app.routers import router_config

RAYS_OWN = [name for name in RouterName if name is not RouterName.WARMTURN]
CHAT = HttpRequest("POST", "/v1/chat/completions", b"", (), b'{"messages": [{"content": "hi"}]}')


class Replica:
    """Answers with its own name."""

    async def http(self, request: HttpRequest, turn: RouteRequest | None) -> str:
        assert request == CHAT
        assert turn is not None
        return serve.get_replica_context().replica_id.unique_id


@pytest.fixture
def replicas(
    serving: LocalCluster, request: pytest.FixtureRequest
) -> Iterator[DeploymentHandle[Any]]:
    """Two replicas behind the router that the test is about."""
    assert serving
    config = AppConfig(model="any", router=request.param)
    deployment = serve.deployment(
        num_replicas=2,
        ray_actor_options={"num_cpus": 0},
        request_router_config=router_config(config),
    )
    yield serve.run(deployment(Replica).bind(), name="rays-own", route_prefix=None)
    serve.delete("rays-own")


@pytest.mark.parametrize("replicas", RAYS_OWN, indirect=True)
async def test_our_requests_are_routed(replicas: DeploymentHandle[Any]) -> None:
    """Each of them gets an answer, although the routers were made for other requests."""
    async with asyncio.timeout(30):
        for number in range(4):
            turn = RouteRequest(RequestId(str(number)), "", SessionId("s1"))
            handle = replicas.options(session_id="s1")
            assert await handle.http.remote(CHAT, turn)

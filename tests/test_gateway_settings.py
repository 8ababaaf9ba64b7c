"""What a gateway that starts tells the router actor, as Serve starts one."""

import asyncio
from typing import Any

import pytest

from policies.tunables import Tunables
from serve_app.app import Gateway
from serve_app.route_request import GatewaySeat
from serve_app.router_actor import RouterActor
from serve_app.router_watch import RouterWatch
from tests.makers import DirectClient

SET = {"routing": {"max_park_s": 60}}
REFUSED = {"routing": {"max_park_s": 5, "typo": 1}}


@pytest.fixture(autouse=True)
async def settings(actor: RouterActor) -> None:
    """What a gateway has told the actor before."""
    await _watch(_gateway(actor, started_at_s=1.0, user_config=SET))
    assert actor._router.tunables.max_park_s == 60


def _gateway(actor: RouterActor, started_at_s: float, **settings: Any) -> Gateway:
    gateway: Any = Gateway.__new__(Gateway)
    gateway._endpoint = None
    seat = GatewaySeat(f"g{started_at_s}", "n1", started_at_s)
    gateway._watch = RouterWatch(DirectClient(actor), None, seat)
    if settings:
        gateway.reconfigure(**settings, rank=None)
    made: Gateway = gateway
    return made


async def _watch(gateway: Gateway) -> None:
    """Let a gateway tell once."""
    watching = asyncio.create_task(gateway._watch.run())
    while gateway._watch.status is None:
        await asyncio.sleep(0)
    watching.cancel()


async def test_before_it_has_its_settings_it_changes_none(actor: RouterActor) -> None:
    """Serve gives them a while after it starts to watch."""
    gateway = _gateway(actor, started_at_s=2.0)
    await _watch(gateway)
    assert actor._router.tunables.max_park_s == 60
    gateway.reconfigure({"routing": {"max_park_s": 5}}, rank=None)
    gateway._watch.status = None
    await _watch(gateway)
    assert actor._router.tunables.max_park_s == 5


async def test_settings_that_are_refused_change_none(actor: RouterActor) -> None:
    """Neither those of a gateway that runs nor those of a new one."""
    await _watch(_gateway(actor, started_at_s=2.0, user_config=REFUSED))
    assert actor._router.tunables.max_park_s == 60


async def test_where_none_are_given_the_defaults_hold(actor: RouterActor) -> None:
    """As Serve says by None."""
    await _watch(_gateway(actor, started_at_s=2.0, user_config=None))
    assert actor._router.tunables == Tunables()

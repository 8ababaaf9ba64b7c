"""Turns, reports and decisions, as tests of the router's shell need them."""

import asyncio
from typing import Any

import numpy as np

from policies.kv_events import EventBatch
from policies.types import (
    Booking,
    Decision,
    ReplicaId,
    RequestId,
    Rule,
    SessionId,
    Tier,
)
from serve_app.replica_report import Node, ReplicaReport
from serve_app.route_request import GatewaySeat, RouteRequest
from serve_app.router_actor import RouterActor
from tests.policies.makers import BLOCK_SIZE, make_hashes, make_state

GATEWAY = GatewaySeat("g1", "n1", 0.0)


def make_turn(name: str, *blocks: int, session: str | None = None) -> RouteRequest:
    """Return a turn whose prompt is these blocks and two more tokens."""
    return RouteRequest(
        RequestId(name),
        f"http-{name}",
        None if session is None else SessionId(session),
        np.array(make_hashes(*blocks), np.uint64),
        len(blocks) * BLOCK_SIZE + 2,
        BLOCK_SIZE,
    )


def make_report(replica: str, **changes: Any) -> ReplicaReport:
    """Return the first report of an idle replica, which holds nothing."""
    state = changes.pop("state", make_state(replica))
    batch = EventBatch(state.replica, state.generation, 0, [])
    fields: dict[str, Any] = {
        "node": Node("n1", is_head=True),
        "block_size": BLOCK_SIZE,
        "cpu_tokens": 0,
        "shared_tokens": 0,
        "turns": frozenset(),
        "first_tokens": (),
        "ends": (),
        "snapshot": None,
    }
    fields |= {"batch": batch, "is_measured": True} | changes
    return ReplicaReport(state, **fields)


def make_decision(turn: RouteRequest, replica: str) -> Decision:
    """Return the decision to send a turn to a replica, which is the only one."""
    chosen = ReplicaId(replica)
    return Decision(
        replicas=(chosen,),
        home=chosen,
        rule=Rule.NEW,
        reason="new session",
        seconds={chosen: {"kv_locality": 0.5}},
        cached_tokens={Tier.GPU: 0, Tier.CPU: 0, Tier.SHARED: 0},
        ttft_s=0.5,
        booking=Booking(turn.request, turn.session, chosen, 10, 3, cold=False, parked=False),
    )


class DirectClient:
    """Calls a router actor in this process, in place of RouterClient."""

    def __init__(self, actor: RouterActor) -> None:
        self._actor = actor

    async def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        """Return what the method returns."""
        async with asyncio.timeout(timeout_s):
            return await getattr(self._actor, method)(*args)

"""Serve's request router that asks the router actor, and does without it when it is silent."""

import asyncio
import logging
import random
import time
from collections import Counter

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from policies.rendezvous import rendezvous
from policies.types import Refusal, ReplicaId
from serve_app.agent_metrics import counter
from serve_app.metrics import ROUTER_FALLBACKS
from serve_app.route_request import Placement, Places, RouteRequest, TurnedAway
from serve_app.router_actor import ASK_S
from serve_app.router_client import RouterClient, RouterSilent

logger = logging.getLogger("ray.serve")

LATE_S = 5.0
"""How late the actor may answer a question about a turn that waits."""

SILENCE_S = 1.0
"""How long the actor is left alone after it did not answer."""


class KVRouter(RequestRouter):
    """Places turns, which are calls with a RouteRequest, where the router actor says.

    While the actor is silent a turn goes by rendezvous hashing of its session, among the replicas
    with room as this process knows them. Calls that are no turns go to any of these.

    Serve makes one of these in each process that holds a handle.
    """

    def initialize_state(self, **kwargs: float) -> None:
        """Take `router_timeout_s`; Serve calls this once."""
        self._timeout_s = kwargs["router_timeout_s"]
        self._client = RouterClient(self.app_name)
        self._silent_until_s = 0.0
        self._sent: Counter[ReplicaID] = Counter()
        self._fallbacks = counter(ROUTER_FALLBACKS)

    async def _choose_replica_for_request(
        self, pending_request: PendingRequest, *, is_retry: bool = False
    ) -> RunningReplica:
        """Return the replica that a request goes to.

        Serve calls this again, as a retry, where that replica had no place for it or is gone. It is
        overridden, and not `choose_replicas`, because Serve would give a replica that was chosen
        for one request to another of the same client's call, and hang where choosing fails.
        """
        turns = (arg for arg in pending_request.args if isinstance(arg, RouteRequest))
        turn = next(turns, None)
        attempt = 0
        if turn and not is_retry:
            turn.rejected_by.clear()
        try:
            if is_retry:
                await self._pause_rejected(turn)
            while True:
                while not self._replicas_list:
                    self._replicas_updated_event.clear()
                    await self._replicas_updated_event.wait()
                replica = await self._place(turn) if turn else random.choice(self._with_room())  # noqa: S311
                if replica:
                    return replica
                await self._backoff(attempt)
                attempt += 1
        except asyncio.CancelledError:
            if turn:
                self._client.tell("give_up", turn.request)
            raise

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Be abstract no longer; Serve's own loop that calls this is not used."""
        raise NotImplementedError

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Drop a replica that a call of this process found dead, and let the actor know."""
        super().on_replica_actor_died(replica_id)
        self._client.tell("lose", ReplicaId(replica_id.unique_id))

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """Count a request that this process sends."""
        super().on_send_request(replica_id)
        self._sent[replica_id] += 1

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Count it no longer, however it ended."""
        super().on_request_completed(replica_id, internal_request_id)
        self._sent[replica_id] -= 1
        if not self._sent[replica_id]:
            del self._sent[replica_id]

    def _with_room(self) -> list[RunningReplica]:
        """Return the replicas that have room, as far as this process fills them, else all."""
        return [
            one
            for one in self._replicas_list
            if self._sent[one.replica_id] < one.max_ongoing_requests
        ] or self._replicas_list

    async def _pause_rejected(self, turn: RouteRequest | None) -> None:
        """Wait before a request tries again, the longer the more often it was rejected."""
        rejections = 1
        if turn and turn.placement:
            turn.rejected_by.add(turn.placement.replica)
            turn.rejections += 1
            rejections = turn.rejections
        await self._backoff(rejections)

    async def _place(self, turn: RouteRequest) -> RunningReplica | None:
        """Place a turn and return its replica; None where a pause is better before trying again."""
        replicas = self._named_replicas()
        if turn.rejected_by.issuperset(replicas):
            turn.rejected_by.clear()  # each was full when it was asked
            return None
        if turn.placement:
            turn.session = turn.placement.session  # its lineage is found but once
        turn.placement = None
        if time.monotonic() >= self._silent_until_s:
            try:
                turn.placement = await self._ask(turn)
            except RouterSilent as error:
                if time.monotonic() >= self._silent_until_s:
                    logger.warning("the router actor is silent (%s): placing without it", error)
                self._silent_until_s = time.monotonic() + SILENCE_S
                self._client.tell("give_up", turn.request)
        if turn.placement is None:
            self._fallbacks.inc()
            roomy = [ReplicaId(one.replica_id.unique_id) for one in self._with_room()]
            among = [name for name in roomy if name not in turn.rejected_by]
            left = [name for name in replicas if name not in turn.rejected_by]
            replica = rendezvous(turn.session or turn.request, among or left)
            turn.placement = Placement(replica, turn.session, None)
        return self._named_replicas().get(turn.placement.replica)

    def _named_replicas(self) -> dict[ReplicaId, RunningReplica]:
        """Return those that run as Serve says now."""
        return {ReplicaId(one.replica_id.unique_id): one for one in self._replicas_list}

    def _places(self) -> Places:
        return {name: one.max_ongoing_requests for name, one in self._named_replicas().items()}

    async def _ask(self, turn: RouteRequest) -> Placement:
        """Return what the router actor decides, once a replica has room for the turn.

        Raises:
            RouterSilent: it does not answer.
            TurnedAway: it refuses the turn.
        """
        try:
            placement: Placement | Refusal | None = await self._client.call(
                "decide", turn, self._places(), timeout_s=self._timeout_s
            )
        finally:
            turn.sent = None  # the replica has no use for it
        while placement is None:
            # A dead actor is heard of; one that's late keeps the turn's place in the queue.
            placement = await self._client.call(
                "wait", turn, self._places(), timeout_s=ASK_S + LATE_S
            )
        if isinstance(placement, Refusal):
            raise TurnedAway(placement.reason)
        return placement

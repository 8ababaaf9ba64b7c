"""Tells the router actor what happens on this replica, as soon as it can be sent."""

import asyncio
import logging
from contextlib import aclosing, suppress

from policies.kv_events import Event, EventBatch, Snapshot
from policies.types import RequestId
from serve_app.engine_load import EngineLoad
from serve_app.engine_turn import EngineTurn
from serve_app.kv_event_stream import Endpoints, Lost, follow
from serve_app.kv_mirror import KvMirror
from serve_app.last_turns import LastTurns
from serve_app.replica_report import Node, ReplicaReport, TurnEnd
from serve_app.route_request import RouteRequest
from serve_app.router_client import RouterLike, RouterSilent

logger = logging.getLogger("ray.serve")

PAUSE_S = 0.05
"""Least time between reports: what happens meanwhile goes into the next."""

HEARTBEAT_S = 1.0
RETRY_S = 0.25
TIMEOUT_S = 5.0


class Reporter:
    """Collects a replica's news and sends them, one report at a time and in order.

    What a report said of KV is lost with it; a snapshot makes up for it. Ends are kept until sent.
    """

    def __init__(self, client: RouterLike, node: Node, load: EngineLoad, model: str) -> None:
        self._client = client
        self._node = node
        self._load = load
        self._model = model
        self._mirror = KvMirror(model)
        self._news = asyncio.Event()
        self._events: list[Event] = []
        self._next_sequence = 0
        self._needs_snapshot = False
        self._silent = False
        self._first_tokens: list[RequestId] = []
        self._ends: list[TurnEnd] = []
        self._turns: set[RequestId] = set()
        self._last_turns = LastTurns()

    def began(self, turn: RouteRequest) -> None:
        """Hear that a turn begins."""
        self._turns.add(turn.request)
        self._last_turns.add(turn)

    def prefilled(self, tokens: int, arrived_at_s: float, first_token_at_s: float) -> None:
        """Hear of a prefill, as WatchedLLM tells it."""
        self._load.prefilled(tokens, arrived_at_s, first_token_at_s)

    def first_token(self, request: RequestId) -> None:
        """Hear of a turn's first token, as WatchedLLM tells it."""
        self._first_tokens.append(request)
        self._news.set()

    def ended(self, turn: EngineTurn) -> None:
        """Hear that a turn is over."""
        self._turns.discard(turn.request)
        self._ends.append(turn.end())
        self._news.set()

    async def follow(self, endpoints: Endpoints) -> None:
        """Take in the engine's KV events until cancelled."""
        async with aclosing(follow(endpoints)) as stream:
            async for events in stream:
                if isinstance(events, Lost):
                    logger.warning("%d batches of KV events are lost", events.batches)
                    self._mirror = KvMirror(self._model)
                    self._needs_snapshot = True
                else:
                    self._events += self._mirror.apply(events)
                    self._news.set()

    async def run(self) -> None:
        """Send reports until cancelled, also when there is no news."""
        while True:
            if self._silent:
                await asyncio.sleep(RETRY_S)
            else:
                await self._await_news(HEARTBEAT_S)
            self._news.clear()
            await self.send()
            await asyncio.sleep(PAUSE_S)

    async def _await_news(self, timeout_s: float) -> None:
        with suppress(TimeoutError):  # then it's time to say that we live
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    async def send(self) -> None:
        """Send one report; not while `run` is at work."""
        report = self._report()
        try:
            synced = await self._client.call("report", report, timeout_s=TIMEOUT_S)
        except RouterSilent as error:
            if not self._silent:
                logger.warning("the router hears nothing of this replica: %s", error)
            self._ends[:0] = report.ends
            self._first_tokens[:0] = report.first_tokens
            self._silent = True
            return
        self._silent = False
        if not synced:
            self._needs_snapshot = True
            self._news.set()

    def _report(self) -> ReplicaReport:
        """Return what is new, and count it as told."""
        state = self._load.state()
        replica, generation = state.replica, state.generation
        snapshot = batch = None
        if self._needs_snapshot:
            # The mirror is ahead of nothing: all events not told yet are in it.
            sequence = self._next_sequence - 1
            snapshot = Snapshot(replica, generation, sequence, self._mirror.snapshot())
            self._needs_snapshot = False
        elif self._events or self._silent or not self._next_sequence:
            # After a silence its number tells the router whether it missed one.
            batch = EventBatch(replica, generation, self._next_sequence, self._events)
            self._next_sequence += 1
        self._events = []
        first_tokens, self._first_tokens = tuple(self._first_tokens), []
        ends, self._ends = tuple(self._ends), []
        last_turns = self._last_turns.aged() if snapshot else ()
        # Models with several kinds of attention have blocks of several sizes.
        block_size = self._mirror.block_size or self._load.block_size
        return ReplicaReport(
            state,
            self._node,
            block_size,
            self._load.is_measured,
            self._load.cpu_tokens,
            self._load.shared_tokens,
            frozenset(self._turns),
            first_tokens,
            ends,
            snapshot,
            batch,
            last_turns,
        )

"""The one actor that knows the fleet: it holds `policies.Router` and feeds it what happens."""

import asyncio
import logging
import math
import time
from random import Random

import ray

from policies.observer import Observer
from policies.router import Router
from policies.tunables import Tunables
from policies.types import Decision, Park, Refusal, ReplicaId, Request, RequestId, SessionId
from serve_app import explain, session_list, session_story
from serve_app.config import RecordConfig
from serve_app.fleet import Fleet
from serve_app.metric import Sample
from serve_app.metrics import START_TIME, SURPRISES, UNPLACED_TURNS
from serve_app.replica_report import ReplicaReport
from serve_app.route_request import GatewaySeat, Placement, Places, RouteRequest, RouterStatus, Why
from serve_app.router_gauges import gauges, reuse_samples, scaling_samples
from serve_app.scaling import ScaleQuestion, Scaling
from serve_app.turn_records import TurnRecords
from serve_app.turn_state import TurnStates
from serve_app.waiters import Waiters

logger = logging.getLogger(__name__)

TICK_S = 1.0

ASK_S = 1.0
"""How long a gateway's question about a waiting request is held before it has to ask again."""

ABANDONED_S = 5.0
"""A waiting request that no gateway asks about for so long is given up."""

UNSENT_S = 10.0
"""A turn that its replica still does not have after so long was never sent: its gateway died."""

SILENT_S = 5.0
"""A replica or gateway that is not heard of for so long is forgotten, until it is."""

IDLE_END_S = 600.0
"""Without a call for so long the application is gone, and this actor ends."""


class RouterActor:
    """Called by many gateways and replicas at a time; no method blocks.

    Time is this process's monotonic clock. What it knows dies with the process: replicas send a
    new one snapshots of their blocks and sessions, and their reports say how busy they are.
    """

    def __init__(self, idle_end_s: float = IDLE_END_S) -> None:
        self._idle_end_s = idle_end_s
        self._router = Router(Tunables())
        self._scaling = Scaling()
        self._fleet = Fleet(self._router.index.is_synced, self._scaling.is_draining)
        self._states = TurnStates(self._router, self._fleet)
        self._waiters = Waiters()
        self._turns = TurnRecords()
        self._observer: Observer | None = None
        self._rng = Random()  # noqa: S311  # breaks ties
        self._started_at_s = self._called_at_s = time.monotonic()
        self._started_at = time.time()
        self._clock: asyncio.Task[None] | None = None

    async def decide(self, asked: RouteRequest, places: Places) -> Placement | Refusal | None:
        """Place a request on one of these replicas; None if it has to wait: call `wait` then.

        Those that rejected it are left out, if there are others.
        """
        now_s = self._now()
        turn = self._turns.arrived(asked, now_s)
        if self._observer and turn.arrived_at_s == now_s:  # not one that is asked for again
            self._observer.arrived(asked.hashes, asked.prompt_tokens, now_s)
        block_size = self._fleet.block_size or asked.block_size  # its gateway may not know it yet
        request = Request(
            request=asked.request,
            session=asked.session,
            hashes=asked.hashes.tolist(),
            prompt_tokens=asked.prompt_tokens,
            block_size=asked.block_size if len(asked.hashes) else block_size,
            arrived_at_s=turn.arrived_at_s,
        )
        self._fleet.places = places
        candidates = self._fleet.candidates()
        open_to_it = [one for one in candidates if one.replica not in asked.rejected_by]
        outcome = self._router.decide(request, open_to_it or candidates, now_s, self._rng)
        self._turns.decided(outcome, self._router.tunables, now_s)
        if isinstance(outcome, Park):
            self._waiters.open(asked.request, now_s)
            return None
        return self._answer(outcome)

    async def wait(self, asked: RouteRequest, places: Places) -> Placement | Refusal | None:
        """Return where a waiting request goes; None if it has to wait on: call again."""
        if asked.request not in self._waiters:  # this actor is a new one
            return await self.decide(asked, places)
        self._fleet.places = places
        outcome = await self._waiters.ask(asked.request, self._now(), ASK_S)
        return self._answer(outcome) if outcome else None

    async def give_up(self, request: RequestId) -> None:
        """Note that a request goes nowhere. If a replica has it, that one reports its end."""
        now_s = self._now()
        self._turns.given_up(request)
        if request in self._router.waiting or not self._fleet.has(request):
            self._end(request, now_s)

    async def lose(self, replica: ReplicaId) -> None:
        """Note that a replica is gone."""
        self._forget(replica, self._now())

    async def report(self, report: ReplicaReport) -> bool:
        """Take in what a replica says; return False if it has to send a snapshot next."""
        now_s = self._now()
        replica = report.state.replica
        self._fleet.report(report, now_s)
        if self._observer is None or self._observer.block_size != report.block_size:
            self._observer = Observer(report.block_size)
        if report.snapshot:
            self._router.index.restore(report.snapshot, now_s)
            self._router.resume(report.last_turns, replica, now_s)
        if report.batch:
            self._router.index.apply(report.batch, now_s)
            self._turns.totals.kv_events(report.batch.events)
        booked_at = self._router.in_flight.replica
        for request in report.first_tokens:
            if booked_at(request) == replica:
                self._router.first_byte(request, now_s)
        for end in report.ends:
            if booked_at(end.request) not in (replica, None):
                continue  # it was taken for lost here, and runs there
            if not self._turns.has_ended(end.request):  # else it was sent twice
                tokens = self._router.judge(end.request, end.prompt_tokens, end.cached_tokens)
                self._turns.ended(end, replica, tokens)
            self._router.end_at_replica(end.request, now_s)
        self._place_waiting(now_s)
        return self._router.index.is_synced(replica)

    async def scale(self, asked: ScaleQuestion) -> int:
        """Return how many replicas there should be, as Serve asks every few seconds."""
        now_s = self._now()
        seats = tuple(one for one in self._fleet.seats if one.replica in asked.running)
        if silent := asked.running - {seat.replica for seat in seats}:  # it starts, or this actor
            why = f"{', '.join(sorted(silent))} does not report"
            return self._scaling.hold(asked, why, now_s)
        if self._observer is None or not seats:
            return self._scaling.wake(asked, now_s)
        states = [self._fleet.state(seat.replica) for seat in seats]
        observed = self._observer.observe(
            seats,
            states,
            self._fleet.cpu_tokens,
            self._fleet.shared_tokens,
            asked.settings,
            now_s,
        )
        return self._scaling.answer(asked, observed, now_s)

    async def configure(
        self, tunables: Tunables | None, record: RecordConfig | None, seat: GatewaySeat
    ) -> RouterStatus:
        """Decide by these numbers from now on, and record turns so, as the newest gateway says.

        Older ones may be leaving, and have other settings. One that has no numbers yet leaves them.
        """
        now_s = self._now()
        self._fleet.greet(seat, now_s)
        if self._fleet.is_newest(seat):
            if tunables not in (None, self._router.tunables):
                self._router.tune(tunables)
            self._turns.record(record)
        index = self._router.index
        return RouterStatus(
            block_size=self._fleet.block_size,
            replicas=len(self._fleet),
            synced_replicas=sum(map(index.is_synced, self._fleet)),
            sessions=len(self._router.sessions),
            blocks=len(index),
            shared_blocks=index.shared_blocks,
            waiting=len(self._router.waiting),
            running_sessions=len(self._router.admission),
            session_limit=self._router.admission.limit.sessions,
            started_s_ago=round(now_s - self._started_at_s, 1),
            tunables=self._router.tunables,
            autoscaling=self._scaling.wish,
            record=self._turns.recorder.status if self._turns.recorder else None,
        )

    async def decision(self, request_id: str) -> explain.Json | None:
        """Return all that is known of a decision, by the turn's id or the one its client saw."""
        turn = self._turns.log.find(request_id)
        return explain.decision(turn, self._states) if turn else None

    async def decisions(self, limit: int) -> bytes:
        """Return as JSON in short the decisions on the turns that arrived last."""
        return await explain.decisions(self._turns.log.newest(limit), self._states)

    async def replicas(self) -> list[explain.Json]:
        """Return each replica's state and load."""
        return explain.replicas(self._fleet, self._router, self._now())

    async def sessions(self, limit: int, within_s: float = math.inf) -> bytes:
        """Return as JSON what is known of the sessions seen last, of those seen `within_s`."""
        history = self._turns.sessions
        return await session_list.sessions(self._router, history, limit, within_s, self._now())

    async def session(self, session: SessionId) -> explain.Json | None:
        """Return how a session went, and where its KV is."""
        return session_story.session(session, self._states, self._turns.sessions, self._now())

    async def samples(self) -> list[Sample]:
        """Return all metrics of the router."""
        now_s = self._now()
        found = [Sample(START_TIME.name, (), self._started_at)]
        found += gauges(self._fleet.states(), self._router, now_s)
        found += scaling_samples(self._scaling)
        if self._observer:
            found += reuse_samples(self._observer, self._fleet.memory_tokens, now_s)
        return [*found, *self._turns.samples()]

    def _now(self) -> float:
        """Return the time of a call, and see to it that the clock runs."""
        self._called_at_s = time.monotonic()
        if self._clock is None:
            self._clock = asyncio.get_running_loop().create_task(self._tick())
        return self._called_at_s

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._let_go(time.monotonic())
            except Exception:
                logger.exception("letting go of what is too old failed")

    def _let_go(self, now_s: float) -> None:
        """Let go of all that nobody speaks of any more, this actor itself in the end."""
        self._fleet.forget_gateways(now_s - SILENT_S)
        for replica in self._fleet.silent(now_s, SILENT_S):
            logger.warning("replica %s is silent: forgotten", replica)
            self._forget(replica, now_s)
        for replica in self._fleet:
            has = self._fleet.turns(replica)
            for request in self._router.in_flight.missing(replica, has, now_s - UNSENT_S):
                self._router.end(request, now_s)
        for request in self._waiters.abandoned(now_s, ABANDONED_S):
            self._end(request, now_s)
        running = (request for replica in self._fleet for request in self._fleet.turns(replica))
        waiting = (one.request for one in self._router.waiting.bookings())
        self._turns.expire({*running, *waiting}, now_s)
        states = self._fleet.states()
        self._router.expire(now_s, sum(not state.draining for state in states))
        if self._observer:
            self._observer.look(states, self._router, now_s)
        self._scaling.expire(now_s)
        self._place_waiting(now_s)
        if now_s - self._called_at_s > self._idle_end_s:
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _end(self, request: RequestId, now_s: float) -> None:
        if request in self._router.waiting:
            self._turns.totals.add(UNPLACED_TURNS, 1)
        self._waiters.close(request)
        self._router.end(request, now_s)
        self._place_waiting(now_s)

    def _forget(self, replica: ReplicaId, now_s: float) -> None:
        if replica in self._fleet and self._scaling.gone(replica):
            self._turns.totals.add(SURPRISES, 1)
        self._fleet.forget(replica)
        self._router.forget(replica, now_s)
        self._place_waiting(now_s)

    def _place_waiting(self, now_s: float) -> None:
        candidates = self._fleet.candidates() if self._router.waiting else []
        if not candidates:
            return
        for outcome in self._router.place_waiting(candidates, now_s, self._rng):
            self._turns.decided(outcome, self._router.tunables, now_s)
            self._waiters.decide(outcome.request, outcome)

    def _answer(self, decision: Decision | Refusal) -> Placement | Refusal:
        if isinstance(decision, Refusal):
            return decision
        waited_s = self._turns.log.waited_s(decision.booking.request)
        return Placement(
            decision.replica,
            decision.booking.session,
            sum(decision.cached_tokens.values()),
            Why(decision.rule, decision.reason, decision.ttft_s, waited_s),
        )

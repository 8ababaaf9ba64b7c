"""Everything the router knows, and what each thing that happens does to it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from policies.admission import Admission
from policies.candidate import Candidate, gather_candidates
from policies.in_flight import InFlight
from policies.misses import Foreseen, PromptTokens, foresee, judge, split_by_tier
from policies.prefix_index import PrefixIndex
from policies.route import route
from policies.sessions import LastTurn, Sessions
from policies.tunables import Tunables
from policies.types import (
    Booking,
    Decision,
    Park,
    Refusal,
    ReplicaId,
    ReplicaState,
    Request,
    RequestId,
    SessionId,
    Tier,
)
from policies.waiting import Waiting

_DECIDED_ANEW = 1
"""Waiting requests that are decided anew, though their replica has no room, as another got some."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A request that was sent to a replica; to compute what nobody had takes `first_seen_s`."""

    request: Request
    foreseen: Foreseen
    first_seen_s: float


class Router:
    """Index, load in flight, sessions and waiting requests together.

    A request's way: `decide`, for one that is parked `place_waiting` until it returns its decision
    or refusal, `first_byte`, `judge`, `end`. KV events go to `index` directly; `expire` is to be
    called about once a second.
    """

    def __init__(self, tunables: Tunables) -> None:
        self.tunables = tunables
        self.index = PrefixIndex(
            tunables.expect_s,
            tunables.remember_s,
            tunables.max_remembered_blocks,
            tunables.max_shared_blocks,
        )
        self.in_flight = InFlight(tunables.booking_expiry_s)
        self.sessions = Sessions(
            think_s=tunables.think_s,
            half_life_thinks=tunables.half_life_thinks,
            expiry_s=tunables.session_expiry_s,
            max_sessions=tunables.max_sessions,
            max_lineages=tunables.max_lineages,
        )
        self.admission = Admission()
        self.waiting = Waiting()
        self._free_blocks: dict[ReplicaId, int] = {}  # when those that wait were last looked at
        self._placed: dict[RequestId, _Placed] = {}
        self._rejected: set[RequestId] = set()  # by a replica, and waiting since

    def tune(self, tunables: Tunables) -> None:
        """Decide by other numbers from now on; what is known stays, but which turns were late."""
        if tunables.ttft_slo_s != self.tunables.ttft_slo_s:
            self.admission.limit.forget_turns()
        self.tunables = tunables
        self.index.tune(
            tunables.expect_s,
            tunables.remember_s,
            tunables.max_remembered_blocks,
            tunables.max_shared_blocks,
        )
        self.in_flight.expiry_s = tunables.booking_expiry_s
        sessions = self.sessions
        sessions.think_s, sessions.half_life_thinks = tunables.think_s, tunables.half_life_thinks
        sessions.expiry_s, sessions.max_sessions = tunables.session_expiry_s, tunables.max_sessions
        sessions.lineages.max_lineages = tunables.max_lineages

    def decide(
        self, request: Request, replicas: Sequence[ReplicaState], now_s: float, rng: Random
    ) -> Decision | Park | Refusal:
        """Decide where a request goes and book it there, or let it wait, or turn it away.

        A request without a session belongs to the one that it extends, or begins one of its own.
        """
        before = self.in_flight.end(request.request)  # a parked request does not wait for itself
        was_placed = before is not None and not before.parked
        is_again = was_placed or request.request in self._rejected
        outcome = self._decide(request, replicas, now_s, rng, is_again=is_again)
        if before and was_placed and not isinstance(outcome, Decision):  # its turn did not start
            self._end_turns((before,), now_s)
        self._rejected.discard(request.request)
        if is_again and isinstance(outcome, Park):
            self._rejected.add(request.request)
        return outcome

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float, rng: Random
    ) -> list[Decision | Refusal]:
        """Return decisions on those that wait and now find room, or waited long enough.

        This costs little while no replica has more room than at the last call.
        """
        free_blocks = {state.replica: state.free_blocks for state in replicas}
        has_more = any(free > self._free_blocks.get(one, 0) for one, free in free_blocks.items())
        self._free_blocks = free_blocks
        others = _DECIDED_ANEW if has_more else 0
        due = self.waiting.due(replicas, self.in_flight, self.admission, others, now_s)
        outcomes = [self.decide(request, replicas, now_s, rng) for request in due]
        return [outcome for outcome in outcomes if not isinstance(outcome, Park)]

    def resume(self, turns: Iterable[LastTurn], replica: ReplicaId, now_s: float) -> None:
        """Learn of the sessions that a replica served; their `at_s` are seconds before now.

        Of those that have turns here, which replicas hear of later, more is known already.
        """
        running = self.running_sessions
        news = (turn for turn in turns if turn.session not in running)
        dated = (replace(turn, at_s=now_s + turn.at_s) for turn in news)
        self.sessions.resume(dated, replica)

    @property
    def running_sessions(self) -> set[SessionId | None]:
        """Those of whose turns one runs at least."""
        return {session for session, _ in self.in_flight.sessions()}

    def first_byte(self, request: RequestId, now_s: float) -> None:
        """Note that a request's prefill is done."""
        if placed := self._unanswered(request):
            began_at_s = self._began_at_s(placed)
            is_late = self._is_late(placed, now_s)
            self.admission.limit.first_token(began_at_s, now_s, late=is_late)
        self.in_flight.first_byte(request)

    def judge(
        self, request: RequestId, prompt_tokens: int, cached_tokens: int
    ) -> PromptTokens | None:
        """Return what became of the tokens of a prompt, of which the engine found some cached.

        None where it was not placed here, or has ended, and where the engine computed another
        number of `prompt_tokens`: for several answers, or none, or it was not read beforehand.
        """
        placed = self._placed.get(request)
        if placed is None or placed.request.prompt_tokens != prompt_tokens:
            return None
        asked, foreseen = placed.request, placed.foreseen
        by_tier = split_by_tier(cached_tokens, foreseen.match, asked.block_size)
        return judge(foreseen, prompt_tokens, asked.block_size, by_tier)

    def end_at_replica(self, request: RequestId, now_s: float) -> None:
        """Note that a request ended where it was placed, maybe since its client gave up."""
        placed = self._unanswered(request)
        if placed and self._is_late(placed, now_s):
            self.admission.limit.first_token(self._began_at_s(placed), now_s, late=True)
        self.end(request, now_s)

    def end(self, request: RequestId, now_s: float) -> None:
        """Note that a request ended, however it did, or waits no longer."""
        self.waiting.discard(request)
        self._rejected.discard(request)
        if booking := self.in_flight.finish(request, now_s):
            self._end_turns((booking,), now_s)

    def forget(self, replica: ReplicaId, now_s: float) -> tuple[Booking, ...]:
        """Forget a replica that is gone or began anew; return the requests that it had."""
        self.index.forget(replica, now_s)
        return self._end_turns(self.in_flight.end_replica(replica), now_s)

    def expire(self, now_s: float, replicas: int) -> tuple[Booking, ...]:
        """Let go of all that is too old; return the requests whose end was never reported.

        `replicas` take new requests now.
        """
        expired = self._end_turns(self.in_flight.expire(now_s), now_s)
        self.index.expire(now_s)
        self.sessions.expire(now_s)
        busy = self.running_sessions | self.waiting.sessions
        self.admission.limit.fit(replicas, now_s)
        self.admission.expire(busy, self.waiting.held_sessions, self.tunables, now_s)
        return expired

    def _decide(
        self,
        request: Request,
        replicas: Sequence[ReplicaState],
        now_s: float,
        rng: Random,
        *,
        is_again: bool,
    ) -> Decision | Park | Refusal:
        if all(state.draining for state in replicas):  # it must not wait for one that never goes
            replicas = [replace(state, draining=False) for state in replicas]
        if request.session is None:
            session = (
                self.sessions.lineages.find(request.hashes)
                or self.admission.returning(request.hashes)
                or SessionId(request.request)
            )
            request = replace(request, session=session)
        else:
            session = request.session
        known = self.sessions.get(session)
        if known and known.turns == 1 and is_again:
            known = None  # this is its first turn: where it was to be has nothing of it
        candidates = gather_candidates(
            request, replicas, self.index, self.in_flight, self.sessions, now_s
        )
        outcome = route(
            candidates,
            known.replica if known else None,
            self.in_flight.median_uncached_tokens(),
            self.tunables,
            now_s,
            rng,
        )
        if not self.admission.admits(session):
            waits = self.admission.hold(request, outcome, self.tunables.max_park_s, now_s)
            if isinstance(waits, Park):
                self.waiting.add(request, waits)
            else:
                self.waiting.discard(request.request)
            return waits
        self.admission.enter(session, now_s)
        self.in_flight.book(outcome.booking, now_s)
        if isinstance(outcome, Park):
            self.waiting.add(request, outcome)
        else:
            self.waiting.discard(request.request)
            self._placed[request.request] = self._foresee(request, outcome.replica, candidates)
            cached_blocks = outcome.cached_tokens[Tier.GPU] // request.block_size
            self.index.expect(outcome.replica, request.hashes[cached_blocks:], now_s)
            home, blocks = outcome.home, request.blocks
            self.sessions.start_turn(
                session, home, request.hashes, blocks, now_s, is_again=is_again
            )
        return outcome

    def _foresee(
        self, request: Request, chosen: ReplicaId, candidates: Sequence[Candidate]
    ) -> _Placed:
        matches = {one.replica: one.match for one in candidates}
        foreseen = foresee(request.hashes, matches, chosen, self.index)
        first_seen_tokens = request.prompt_tokens - foreseen.seen_blocks * request.block_size
        [rate] = [c.state.prefill_tokens_per_s for c in candidates if c.replica == chosen]
        return _Placed(request, foreseen, first_seen_tokens / rate)

    def _unanswered(self, request: RequestId) -> _Placed | None:
        """Return a request that was sent to a replica and had no first byte yet."""
        return self._placed.get(request) if self.in_flight.is_prefilling(request) else None

    def _began_at_s(self, placed: _Placed) -> float:
        asked = placed.request
        assert asked.session is not None
        return self.admission.began_at_s(asked.session, asked.arrived_at_s)

    def _is_late(self, placed: _Placed, now_s: float) -> bool:
        """Tell whether a first token that comes now, or did not come until now, is late."""
        delay_s = now_s - self._began_at_s(placed) - placed.first_seen_s
        return delay_s > self.tunables.ttft_slo_s

    def _end_turns(self, bookings: tuple[Booking, ...], now_s: float) -> tuple[Booking, ...]:
        for booking in bookings:
            self._placed.pop(booking.request, None)
            if booking.session is not None and not booking.parked:
                self.sessions.end_turn(booking.session, now_s)
        return bookings

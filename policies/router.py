"""Everything the router knows, and what each thing that happens does to it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from policies.candidate import gather_candidates
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


class Router:
    """Index, load in flight, sessions and waiting requests together.

    A request's way: `decide`, for one that is parked `place_waiting` until it returns its decision,
    `first_byte`, `judge`, `end`. KV events go to `index` directly; `expire` is to be called about
    once a second.
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
        self.waiting = Waiting()
        self._free_blocks: dict[ReplicaId, int] = {}  # when those that wait were last looked at
        self._placed: dict[RequestId, tuple[Request, Foreseen]] = {}

    def tune(self, tunables: Tunables) -> None:
        """Decide by other numbers from now on; what is known stays."""
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
    ) -> Decision | Park:
        """Decide where a request goes and book it there, or let it wait.

        A request without a session belongs to the one that it extends, or begins one of its own.
        """
        self.in_flight.end(request.request)  # a parked request does not wait for itself
        if all(
            state.draining for state in replicas
        ):  # it must not wait for one that would never go
            replicas = [replace(state, draining=False) for state in replicas]
        if request.session is None:
            session = self.sessions.lineages.find(request.hashes) or SessionId(request.request)
            request = replace(request, session=session)
        else:
            session = request.session
        known = self.sessions.get(session)
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
        self.in_flight.book(outcome.booking, now_s)
        if isinstance(outcome, Park):
            self.waiting.add(request, outcome)
        else:
            self.waiting.discard(request.request)
            matches = {one.replica: one.match for one in candidates}
            foreseen = foresee(request.hashes, matches, outcome.replica, self.index)
            self._placed[request.request] = request, foreseen
            held = outcome.cached_tokens[Tier.GPU] // request.block_size
            self.index.expect(outcome.replica, request.hashes[held:], now_s)
            self.sessions.start_turn(session, outcome.home, request.hashes, request.blocks, now_s)
        return outcome

    def place_waiting(
        self, replicas: Sequence[ReplicaState], now_s: float, rng: Random
    ) -> list[Decision]:
        """Return decisions on those that wait and now find room, or waited long enough.

        This costs little while no replica has more room than at the last call.
        """
        free_blocks = {state.replica: state.free_blocks for state in replicas}
        has_more = any(free > self._free_blocks.get(one, 0) for one, free in free_blocks.items())
        self._free_blocks = free_blocks
        others = _DECIDED_ANEW if has_more else 0
        due = self.waiting.due(replicas, self.in_flight, others, now_s)
        outcomes = [self.decide(request, replicas, now_s, rng) for request in due]
        return [outcome for outcome in outcomes if isinstance(outcome, Decision)]

    def resume(self, turns: Iterable[LastTurn], replica: ReplicaId, now_s: float) -> None:
        """Learn of the sessions that a replica served; their `at_s` are seconds before now."""
        for turn in turns:
            self.sessions.resume(replace(turn, at_s=now_s + turn.at_s), replica)

    def first_byte(self, request: RequestId) -> None:
        """Note that a request's prefill is done."""
        self.in_flight.first_byte(request)

    def judge(
        self, request: RequestId, prompt_tokens: int, cached_tokens: int
    ) -> PromptTokens | None:
        """Return what became of the tokens of a prompt, of which the engine found some cached.

        None where it was not placed here, or has ended, and where the engine computed another
        number of `prompt_tokens`: for several answers, or none, or it was not read beforehand.
        """
        if request not in self._placed:
            return None
        asked, foreseen = self._placed[request]
        if asked.prompt_tokens != prompt_tokens:
            return None
        by_tier = split_by_tier(cached_tokens, foreseen.match, asked.block_size)
        return judge(foreseen, prompt_tokens, asked.block_size, by_tier)

    def end(self, request: RequestId, now_s: float) -> None:
        """Note that a request ended, however it did, or waits no longer."""
        self.waiting.discard(request)
        if booking := self.in_flight.finish(request, now_s):
            self._end_turns((booking,), now_s)

    def forget(self, replica: ReplicaId, now_s: float) -> tuple[Booking, ...]:
        """Forget a replica that is gone or began anew; return the requests that it had."""
        self.index.forget(replica, now_s)
        return self._end_turns(self.in_flight.end_replica(replica), now_s)

    def expire(self, now_s: float) -> tuple[Booking, ...]:
        """Let go of all that is too old; return the requests whose end was never reported."""
        expired = self._end_turns(self.in_flight.expire(now_s), now_s)
        self.index.expire(now_s)
        self.sessions.expire(now_s)
        return expired

    def _end_turns(self, bookings: tuple[Booking, ...], now_s: float) -> tuple[Booking, ...]:
        for booking in bookings:
            self._placed.pop(booking.request, None)
            if booking.session is not None and not booking.parked:
                self.sessions.end_turn(booking.session, now_s)
        return bookings

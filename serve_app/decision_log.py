"""The last decisions, what was weighed for each, and what came of it."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from policies.misses import PromptTokens
from policies.prefix_break import PrefixBreak
from policies.tunables import Tunables
from policies.types import Decision, Park, Refusal, ReplicaId, RequestId, SessionId
from policies.whereabouts import PromptSample, sample
from serve_app.replica_report import TurnEnd
from serve_app.route_request import RouteRequest

MAX_TURNS = 2000
"""Each has the seconds of all replicas."""

MAX_OPEN_TURNS = 8000
"""Where more than that wait and run, the oldest of them are forgotten, too."""


@dataclass(slots=True)
class LoggedTurn:
    """One turn from its arrival at the router on; times are the router's own clock.

    `decision` is the latest one: a turn whose replica was full or lost is decided on again.
    """

    request: RequestId
    http_id: str
    session: SessionId | None
    client: str | None
    sample: PromptSample
    prompt_tokens: int
    not_rendered: str | None
    prefix_break: PrefixBreak | None
    arrived_at_s: float
    arrived_at: str
    """Date and time, in UTC, as `decided_at`."""
    is_given_up: bool = False
    """Its gateway no longer asks for it."""
    decisions: int = 0
    park: Park | None = None
    waits_since_s: float | None = None
    waited_s: float = 0.0
    """Until it was placed or refused; where it was lost and waited again, both times."""
    decision: Decision | None = None
    decided_at: str | None = None
    weights: Mapping[str, float] | None = None
    """What each scorer's seconds were multiplied by."""
    refusal: Refusal | None = None
    end: TurnEnd | None = None
    ended_on: ReplicaId | None = None
    """Not that of the decision where this came too late, and the gateway did without."""
    tokens: PromptTokens | None = None
    """What became of its prompt's tokens."""


@dataclass(slots=True)
class DecisionLog:
    """The last MAX_TURNS turns, and older ones that wait or run."""

    _turns: OrderedDict[RequestId, LoggedTurn] = field(default_factory=OrderedDict)

    def arrived(self, asked: RouteRequest, now_s: float) -> LoggedTurn:
        """Return the turn's record, which begins when the router first hears of it."""
        turn = self._turns.get(asked.request)
        if turn is None:
            turn = LoggedTurn(
                asked.request,
                asked.http_id,
                asked.session,
                asked.client,
                sample(asked.hashes),
                asked.prompt_tokens,
                asked.not_rendered,
                asked.prefix_break,
                now_s,
                _date(),
            )
            self._turns[asked.request] = turn
            if len(self._turns) > MAX_OPEN_TURNS:
                self._turns.popitem(last=False)
        turn.is_given_up = False
        return turn

    def given_up(self, request: RequestId) -> None:
        """Note that a turn's gateway no longer asks for it; a replica may have it all the same."""
        if turn := self._turns.get(request):
            turn.is_given_up = True

    def decided(
        self, outcome: Decision | Park | Refusal, tunables: Tunables, now_s: float
    ) -> LoggedTurn | None:
        """Note what was decided on a turn, by which numbers; return it if it is remembered."""
        turn = self._turns.get(outcome.request)
        if turn is None:
            return None
        if isinstance(outcome, Park):
            turn.park = outcome
            if turn.waits_since_s is None:
                turn.waits_since_s = now_s
        elif turn.waits_since_s is not None:
            turn.waited_s += now_s - turn.waits_since_s
            turn.waits_since_s = None
        if isinstance(outcome, Refusal):
            turn.session, turn.refusal = outcome.session, outcome
        else:
            turn.session = outcome.booking.session
            if isinstance(outcome, Decision):
                turn.decision = outcome
                turn.decided_at = _date()
                turn.weights = tunables.weights
                turn.decisions += 1
        return turn

    def ended(
        self, end: TurnEnd, replica: ReplicaId, tokens: PromptTokens | None
    ) -> LoggedTurn | None:
        """Note what came of a turn there; return it if it is remembered."""
        if turn := self._turns.get(end.request):
            turn.end, turn.ended_on, turn.tokens = end, replica, tokens
        return turn

    def expire(self, alive: Collection[RequestId]) -> None:
        """Forget all but the last MAX_TURNS, and those `alive`, which wait or run."""
        too_many = max(0, len(self._turns) - MAX_TURNS)
        for request in list(islice(self._turns, too_many)):
            if request not in alive:
                del self._turns[request]

    def waited_s(self, request: RequestId) -> float | None:
        """Return how long a turn waited for room so far, where it is known."""
        turn = self._turns.get(request)
        return None if turn is None else turn.waited_s

    def newest(self, limit: int) -> list[LoggedTurn]:
        """Return the turns that arrived last, the most recent one first."""
        return list(islice(reversed(self._turns.values()), limit))

    def find(self, name: str) -> LoggedTurn | None:
        """Return a turn by its own id, or the last of a client's id: clients may use one twice."""
        if turn := self._turns.get(RequestId(name)):
            return turn
        turns = reversed(self._turns.values())
        return next((turn for turn in turns if turn.http_id == name), None)


def _date() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

"""What is kept of turns: the last ones, sessions in short, counts, and a file if one is set."""

from collections.abc import Collection, Iterator

from policies.misses import PromptTokens
from policies.tunables import Tunables
from policies.types import Decision, Park, Refusal, ReplicaId, RequestId, SessionId
from serve_app.config import RecordConfig
from serve_app.decision_log import DecisionLog, LoggedTurn
from serve_app.ended_turns import EndedTurns
from serve_app.metric import Sample
from serve_app.metrics import RECORDED_TURNS, REFUSED_TURNS, UNRECORDED_TURNS
from serve_app.record_counts import RecordCounts
from serve_app.replica_report import TurnEnd
from serve_app.route_request import RouteRequest
from serve_app.router_totals import RouterTotals
from serve_app.session_turns import SessionTurns
from serve_app.turn_recorder import TurnRecorder


class TurnRecords:
    """Is to be told of each turn's arrival, of the decisions on it, and once of its end."""

    def __init__(self) -> None:
        self.log = DecisionLog()
        self.sessions = SessionTurns()
        self.totals = RouterTotals()
        self.recorder: TurnRecorder | None = None
        self._counts = RecordCounts()
        self._ended = EndedTurns()

    def record(self, config: RecordConfig | None) -> None:
        """Record turns from now on as these settings say, or none."""
        if config == (self.recorder.config if self.recorder else None):
            return
        if self.recorder:
            self.recorder.close()
        self.recorder = TurnRecorder(config, self._counts) if config else None

    def arrived(self, asked: RouteRequest, now_s: float) -> LoggedTurn:
        """Return the turn's record, which begins when the router first hears of it."""
        if self.recorder and asked.request not in self._ended:  # a gateway may take it for lost
            self.recorder.arrived(asked, now_s)
        return self.log.arrived(asked, now_s)

    def decided(self, outcome: Decision | Park | Refusal, tunables: Tunables, now_s: float) -> None:
        """Note what was decided on a turn, by which numbers."""
        if self.recorder:
            self.recorder.decided(outcome, now_s)
        turn = self.log.decided(outcome, tunables, now_s)
        if isinstance(outcome, Refusal):
            self.totals.add(REFUSED_TURNS, 1)
        if turn and isinstance(outcome, Decision):
            self.totals.decided(turn)
        if turn and outcome.request not in self._ended and _is_remembered(turn):
            self.sessions.decided(outcome.request, turn)

    def given_up(self, request: RequestId) -> None:
        """Note that nobody asks for a turn any more, though a replica may have it."""
        if self.recorder:
            self.recorder.given_up(request)
        self.log.given_up(request)
        self.sessions.given_up(request)

    def ended(self, end: TurnEnd, replica: ReplicaId, tokens: PromptTokens | None) -> None:
        """Note what came of a turn there, and of its prompt's tokens where that is known."""
        self._ended.add(end.request)
        if self.recorder:
            self.recorder.ended(end, replica, tokens)
        self.totals.ended(end, self.log.ended(end, replica, tokens), tokens)
        self.sessions.ended(end, replica, tokens)

    def has_ended(self, request: RequestId) -> bool:
        """Tell whether the end of a turn was told."""
        return request in self._ended

    def expire(self, alive: Collection[RequestId], now_s: float) -> None:
        """Let go of what is too much, and of turns whose end nobody told; `alive` wait or run."""
        self.log.expire(alive)
        if self.recorder:
            self.recorder.expire(alive, now_s)

    def samples(self) -> Iterator[Sample]:
        """Yield every counter."""
        self.totals.put(RECORDED_TURNS, self._counts.recorded)
        for reason, turns in self._counts.unrecorded.items():
            self.totals.put(UNRECORDED_TURNS, turns, reason)
        yield from self.totals.samples()


def _is_remembered(turn: LoggedTurn) -> bool:
    """Tell whether a session keeps its turn: one that nobody names begins with a placed one."""
    return turn.session is not None and (
        turn.decision is not None or turn.session != SessionId(turn.request)
    )

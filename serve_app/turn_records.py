"""What is kept of turns: the last ones as they were, sessions in short, and counts of all."""

from policies.misses import PromptTokens
from policies.tunables import Tunables
from policies.types import Decision, Park
from serve_app.decision_log import DecisionLog, LoggedTurn
from serve_app.replica_report import TurnEnd
from serve_app.route_request import RouteRequest
from serve_app.router_totals import RouterTotals
from serve_app.session_turns import SessionTurns


class TurnRecords:
    """Is to be told of each turn's arrival, of the decisions on it, and once of its end."""

    def __init__(self) -> None:
        self.log = DecisionLog()
        self.sessions = SessionTurns()
        self.totals = RouterTotals()

    def arrived(self, asked: RouteRequest, now_s: float) -> LoggedTurn:
        """Return the turn's record, which begins when the router first hears of it."""
        return self.log.arrived(asked, now_s)

    def decided(self, outcome: Decision | Park, tunables: Tunables, now_s: float) -> None:
        """Note what was decided on a turn, by which numbers."""
        turn = self.log.decided(outcome, tunables, now_s)
        if turn and isinstance(outcome, Decision):
            self.totals.decided(turn)
            self.sessions.decided(outcome.booking.request, turn)

    def ended(self, end: TurnEnd, tokens: PromptTokens | None) -> None:
        """Note what came of a turn, and of its prompt's tokens where that is known."""
        self.totals.ended(end, self.log.ended(end, tokens), tokens)
        self.sessions.ended(end, tokens)

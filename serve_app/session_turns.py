"""How each session went: its last turns in short, for whoever asks why one was slow."""

from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field

from policies.misses import PromptTokens
from policies.prefix_break import PrefixBreak
from policies.types import ReplicaId, RequestId, Rule, SessionId
from policies.whereabouts import PromptSample
from serve_app.decision_log import LoggedTurn
from serve_app.replica_report import Outcome, TurnEnd

MAX_TURNS = 100_000
MAX_SESSION_TURNS = 500
MAX_SESSIONS = 10_000


@dataclass(slots=True, eq=False)
class SessionTurn:
    """A turn as it was last decided on, and how it ended; None is what is not known (yet).

    One that waits has no `replica`, `rule` and `expected_ttft_s`, nor has one that was turned away.
    """

    request: RequestId
    http_id: str
    arrived_at: str
    decided_at: str | None
    replica: ReplicaId | None
    rule: Rule | None
    prompt_tokens: int
    prefix_break: PrefixBreak | None
    waited_s: float
    expected_ttft_s: float | None
    ttft_s: float | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    tokens: PromptTokens | None = None
    outcome: Outcome | None = None
    is_given_up: bool = False
    """Its gateway no longer asks for it."""


@dataclass(slots=True)
class SessionHistory:
    """A session's last turns, the newest at the end; of more than those, sums.

    `client` and `sample` are of the newest. `forgotten_turns` came before the first. `ttft_s` is
    the last that is known. `cached_tokens` are those of the `ended_tokens` of prompts that ended.
    """

    client: str | None
    sample: PromptSample
    turns: deque[SessionTurn] = field(default_factory=deque)
    forgotten_turns: int = 0
    ttft_s: float | None = None
    ended_tokens: int = 0
    cached_tokens: int = 0


class SessionTurns:
    """The last MAX_SESSION_TURNS turns of each session, in all MAX_TURNS of MAX_SESSIONS at most.

    Where that is too much the session whose last turn is the oldest is forgotten. A turn takes
    about 0.7 kB and a session 2 kB, so this is 90 MB at most.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[SessionId, SessionHistory] = OrderedDict()
        self._open: dict[RequestId, tuple[SessionHistory, SessionTurn]] = {}
        self._turns = 0

    def __len__(self) -> int:
        """How many turns are remembered."""
        return self._turns

    def get(self, session: SessionId) -> SessionHistory | None:
        """Return what is remembered of a session."""
        return self._sessions.get(session)

    def decided(self, request: RequestId, logged: LoggedTurn) -> None:
        """Note what was decided on a turn of a session, in place of what was before."""
        assert logged.session is not None
        made = logged.decision
        turn = SessionTurn(
            request,
            logged.http_id,
            logged.arrived_at,
            logged.decided_at,
            made.replica if made else None,
            made.rule if made else None,
            logged.prompt_tokens,
            logged.prefix_break,
            logged.waited_s,
            made.ttft_s if made else None,
            outcome=Outcome.REFUSED if logged.refusal else None,
        )
        if request in self._open:
            history, earlier = self._open[request]
            history.turns[history.turns.index(earlier)] = turn
        else:
            history = self._sessions.setdefault(
                logged.session, SessionHistory(logged.client, logged.sample)
            )
            history.client, history.sample = logged.client, logged.sample
            history.turns.append(turn)
            self._turns += 1
            self._sessions.move_to_end(logged.session)
        self._open[request] = history, turn
        self._forget_some(history)

    def given_up(self, request: RequestId) -> None:
        """Note that a turn's gateway no longer asks for it; a replica may have it all the same."""
        if request in self._open:
            _, turn = self._open[request]
            turn.is_given_up = True

    def ended(self, end: TurnEnd, replica: ReplicaId, tokens: PromptTokens | None) -> None:
        """Note what came of a turn there, and of its prompt's tokens where that is known."""
        if end.request not in self._open:
            return
        history, turn = self._open.pop(end.request)
        turn.replica = replica  # another one where its gateway did without the decision
        turn.ttft_s, turn.output_tokens = end.ttft_s, end.output_tokens
        turn.cached_tokens, turn.tokens, turn.outcome = end.cached_tokens, tokens, end.outcome
        history.ended_tokens += end.prompt_tokens
        history.cached_tokens += end.cached_tokens
        if end.ttft_s is not None:
            history.ttft_s = end.ttft_s

    def _forget_some(self, history: SessionHistory) -> None:
        if len(history.turns) > MAX_SESSION_TURNS:
            self._forget_turns([history.turns.popleft()])
            history.forgotten_turns += 1
        while self._turns > MAX_TURNS or len(self._sessions) > MAX_SESSIONS:
            _, oldest = self._sessions.popitem(last=False)
            self._forget_turns(oldest.turns)

    def _forget_turns(self, turns: Collection[SessionTurn]) -> None:
        self._turns -= len(turns)
        for turn in turns:
            self._open.pop(turn.request, None)

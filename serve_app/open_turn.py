"""A turn that is to be recorded, from its arrival on."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from policies.misses import PromptTokens
from policies.types import Decision, Park, Refusal, ReplicaId, SessionId
from serve_app.recorded_turn import RecordedTurn
from serve_app.replica_report import Outcome, TurnEnd
from serve_app.route_request import RouteRequest

TURN_BYTES = 2000
"""What a turn takes besides its hashes and what the client sent."""


@dataclass(slots=True)
class OpenTurn:
    """Times are the router's own clock; `heard_at_s` is when anybody spoke of it last."""

    asked: RouteRequest
    arrived_at: datetime
    arrived_at_s: float
    heard_at_s: float
    outcome: Decision | Park | Refusal | None = None
    waited_s: float | None = None
    """Until the last decision that placed or refused it."""
    is_given_up: bool = False

    @classmethod
    def arrives(cls, asked: RouteRequest, now_s: float) -> Self:
        """Begin one that arrives now."""
        # A copy, as Ray keeps a whole message for an array of it.
        asked = replace(asked, hashes=asked.hashes.copy())
        return cls(asked, datetime.now(UTC), now_s, now_s)

    def arrives_again(self, now_s: float) -> None:
        """Note that its gateway asks for it once more."""
        self.heard_at_s, self.is_given_up = now_s, False

    def decided(self, outcome: Decision | Park | Refusal, now_s: float) -> None:
        """Note what was decided."""
        self.outcome, self.heard_at_s = outcome, now_s
        if not isinstance(outcome, Park):
            self.waited_s = now_s - self.arrived_at_s

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, roughly."""
        return size_bytes(self.asked)

    def line(
        self, end: TurnEnd | None, replica: ReplicaId | None, tokens: PromptTokens | None
    ) -> RecordedTurn:
        """Return what is recorded of it but its blocks; `end` is None where no replica told it."""
        asked, made = self.asked, self.outcome if isinstance(self.outcome, Decision) else None
        if made and replica not in (None, made.replica):
            made = None  # it came too late, and its gateway did without
        return RecordedTurn(
            arrived_at=self.arrived_at,
            session=self._session,
            request=asked.http_id,
            outcome=end.outcome if end else self._unheard_outcome,
            prompt_tokens=_prompt_tokens(asked, end),
            output_tokens=end.output_tokens if end else 0,
            cached_tokens=end.cached_tokens if end else 0,
            cached={tier.name.lower(): n for tier, n in tokens.hits.items()} if tokens else None,
            missed={kind.value: n for kind, n in tokens.misses.items()} if tokens else None,
            waited_s=_rounded(self.waited_s),
            ttft_s=_rounded(end.ttft_s) if end else None,
            e2e_s=_rounded(end.e2e_s) if end else None,
            expected_ttft_s=_rounded(made.ttft_s) if made else None,
            replica=replica or (made.replica if made else None),
            rule=made.rule if made else None,
            prefix_break=asked.prefix_break.kind if asked.prefix_break else None,
            not_rendered=asked.not_rendered,
            block_size=asked.block_size,
            path=asked.sent.path if asked.sent else None,
            body=asked.sent.body.decode(errors="replace") if asked.sent else None,
        )

    @property
    def _session(self) -> SessionId | None:
        match self.outcome:
            case None:
                return self.asked.session
            case Refusal():
                return self.outcome.session
        return self.outcome.booking.session

    @property
    def _unheard_outcome(self) -> Outcome:
        """How it ended if no replica told."""
        if isinstance(self.outcome, Refusal):
            return Outcome.REFUSED
        return Outcome.ABORTED if self.is_given_up else Outcome.LOST


def size_bytes(asked: RouteRequest) -> int:
    """Return the memory that a turn takes while it is open, roughly."""
    return TURN_BYTES + asked.hashes.nbytes + (len(asked.sent.body) if asked.sent else 0)


def _prompt_tokens(asked: RouteRequest, end: TurnEnd | None) -> int:
    """Return the length of the prompt, of one where the engine computed several for the turn."""
    if asked.not_rendered is None or end is None:
        return asked.prompt_tokens
    return end.prompt_tokens or asked.prompt_tokens


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)

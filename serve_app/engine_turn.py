"""One turn as its engine sees it: from the call of vLLM's application to the end of the answer."""

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

from policies.types import RequestId
from serve_app.replica_report import Outcome, TurnEnd


@dataclass(slots=True)
class EngineTurn:
    """What the engine made of one HTTP request; several generations where it asks for several."""

    request: RequestId
    started_at_s: float = field(default_factory=time.monotonic)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    first_token_at_s: float | None = None
    outcome: Outcome = Outcome.ABORTED
    """What it is if nothing more happens."""

    def end(self) -> TurnEnd:
        """Return what is to be told of it when it is over, which is now."""
        first_at_s = self.first_token_at_s
        return TurnEnd(
            self.request,
            self.prompt_tokens,
            self.cached_tokens,
            self.output_tokens,
            ttft_s=None if first_at_s is None else first_at_s - self.started_at_s,
            e2e_s=time.monotonic() - self.started_at_s,
            outcome=self.outcome,
        )


current_turn: ContextVar[EngineTurn | None] = ContextVar("current_turn", default=None)
"""The turn for which the code that runs now calls the engine."""

"""One answered request of a replay, as its client saw it."""

from dataclasses import dataclass

from policies.types import ReplicaId, SessionId


@dataclass(frozen=True, slots=True)
class Exchange:
    """A prompt and its answer, in token ids; times are seconds since the replay's start."""

    session: SessionId
    replica: ReplicaId
    prompt: list[int]
    answer: list[int]
    cached_tokens: int
    """Prompt tokens that the service says it did not compute."""
    expected_cached_tokens: int | None
    """The same as its router foresaw, where it says so."""
    sent_s: float
    first_token_s: float
    ended_s: float

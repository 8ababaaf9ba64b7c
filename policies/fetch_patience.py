"""How long a request waits for KV from a slow tier: never much longer than computing it takes."""

from dataclasses import dataclass

EXTRA_RATIO = 0.1
"""How much longer a prefill may take with the tier than without, as a share of the latter."""

GRACE_S = 0.05
"""Waiting of no account: an engine looks only once a step."""

UNMEASURED_S = 2.0
"""How long the first requests wait, while it's not known how fast prompts are computed."""

MEASURED_CHUNKS = 16
"""The shortest computation that is measured: of shorter ones other work of a step takes most."""

RESTS_S = (0.5, 60.0)
"""How long a tier that was too slow is left alone, at first and at most."""

PAST_WEIGHT = 0.8
"""What one more measurement leaves of the weight of those before it."""


@dataclass(slots=True)
class PrefillPace:
    """How long computing one chunk of a prompt takes; recent and long prompts weigh most."""

    _seconds: float = 0.0
    _chunks: float = 0.0

    def measured(self, chunks: int, duration_s: float) -> None:
        """Take in that so many chunks of one prompt were computed in that time."""
        if chunks < MEASURED_CHUNKS:
            return
        self._seconds = self._seconds * PAST_WEIGHT + duration_s
        self._chunks = self._chunks * PAST_WEIGHT + chunks

    @property
    def chunk_s(self) -> float | None:
        """Seconds per chunk, or None before the first measurement."""
        return self._seconds / self._chunks if self._chunks else None


def gives_up(waited_s: float, loaded: int, wanted: int, chunk_s: float | None) -> bool:
    """Tell whether a request stops waiting for the chunks that are not loaded yet.

    Those loaded stay, the others are computed. So the prompt takes
    `waited_s + (wanted - loaded) * chunk_s` instead of `wanted * chunk_s`, and whenever this says
    stop, that is no more than `EXTRA_RATIO` longer, or `GRACE_S`. A tier that is faster than
    computing is always waited for.
    """
    if chunk_s is None:
        return waited_s > UNMEASURED_S
    return waited_s > loaded * chunk_s + max(GRACE_S, EXTRA_RATIO * wanted * chunk_s)


@dataclass(slots=True)
class Rest:
    """Whether a tier is left alone for a while: longer each time, until it was fast again."""

    _next_s: float = RESTS_S[0]
    _until_s: float = 0.0

    def begin(self, now_s: float) -> float | None:
        """Leave the tier alone from now on; return for how long, or None if it rests already."""
        if self.is_on(now_s):
            return None
        rest_s = self._next_s
        self._until_s, self._next_s = now_s + rest_s, min(2 * rest_s, RESTS_S[1])
        return rest_s

    def is_on(self, now_s: float) -> bool:
        """Tell whether the tier rests."""
        return now_s < self._until_s

    def was_fast(self) -> None:
        """Take note that the tier kept nobody waiting."""
        self._next_s = RESTS_S[0]

"""How fast a simulated engine finds itself to be."""

from policies.rates import HOLD_S

_KEEP_RATIO = 0.95
"""Weight of the past, against the newest request."""


class MeasuredRates:
    """Means in which recent requests weigh most; they begin with what the hardware can do."""

    def __init__(self, prefill_tokens_per_s: float, fetch_tokens_per_s: float) -> None:
        self._prefilled_tokens = prefill_tokens_per_s
        self._prefill_s = 1.0
        self._fetched_tokens = fetch_tokens_per_s
        self._fetch_s = 1.0
        self.hold_s = HOLD_S
        """How long a request holds its GPU memory."""

    @property
    def prefill_tokens_per_s(self) -> float:
        """Tokens per second of prefilling."""
        return self._prefilled_tokens / self._prefill_s

    @property
    def fetch_tokens_per_s(self) -> float:
        """Tokens per second from the shared tier, without the time that fetches wait for others."""
        return self._fetched_tokens / self._fetch_s

    def add_prefill(self, tokens: int, seconds: float) -> None:
        """Note a prefill."""
        self._prefilled_tokens = self._prefilled_tokens * _KEEP_RATIO + tokens
        self._prefill_s = self._prefill_s * _KEEP_RATIO + seconds

    def add_fetch(self, tokens: int, seconds: float) -> None:
        """Note a fetch from the shared tier."""
        self._fetched_tokens = self._fetched_tokens * _KEEP_RATIO + tokens
        self._fetch_s = self._fetch_s * _KEEP_RATIO + seconds

    def add_hold(self, seconds: float) -> None:
        """Note how long a request held its memory."""
        self.hold_s += (1 - _KEEP_RATIO) * (seconds - self.hold_s)

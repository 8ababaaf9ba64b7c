"""How fast a replica does its work, measured as it does it."""

from dataclasses import InitVar, dataclass, field

PREFILL_TOKENS_PER_S = 5_000.0
RESTORE_TOKENS_PER_S = 50_000.0
FETCH_TOKENS_PER_S = 25_000.0
HOLD_S = 10.0
"""What is believed of a replica until it has shown its own speed."""

PRIOR_S = 0.05
"""Seconds of work that the belief in a rate counts for: little, so that the first sample wins."""

LEAST_TOKENS = 64
"""A prefill of fewer tokens tells of what each request costs, not of how fast tokens go."""

_KEEP_RATIO = 0.9
"""What the newest sample leaves of the weight of those before it."""


@dataclass(slots=True)
class Mean:
    """A mean of samples in which each weighs a tenth more than the one before it.

    With two quantities per sample it is a rate: their decayed sums, divided. The prior counts as
    one sample of `weight`.
    """

    prior: InitVar[float]
    weight: float = 1.0
    total: float = field(init=False)
    is_measured: bool = field(init=False, default=False)
    """Whether there was a sample."""

    def __post_init__(self, prior: float) -> None:
        """Begin with the prior alone."""
        self.total = prior * self.weight

    def add(self, amount: float, weight: float = 1.0) -> None:
        """Add a sample: `amount` of what is measured, in `weight` of what it is measured by."""
        self.total = self.total * _KEEP_RATIO + amount
        self.weight = self.weight * _KEEP_RATIO + weight
        self.is_measured = True

    @property
    def value(self) -> float:
        """What is measured, by one unit of what it is measured by."""
        return self.total / self.weight


class PrefillRate:
    """Tokens per second that a replica prefills, when it has some to prefill.

    Prefills that run together share the replica. So each is charged only the time since the one
    before it was done, or since it began itself if that was later. What a request waits for before
    is no work of this kind: room in memory, or KV from another tier.
    """

    def __init__(self) -> None:
        self._mean = Mean(PREFILL_TOKENS_PER_S, PRIOR_S)
        self._done_at_s = float("-inf")

    @property
    def is_measured(self) -> bool:
        """Whether it's more than a guess."""
        return self._mean.is_measured

    @property
    def tokens_per_s(self) -> float:
        """The rate; positive."""
        return self._mean.value

    def add(self, tokens: int, began_at_s: float, first_token_at_s: float) -> None:
        """Note a prefill of `tokens` that were in no cache."""
        started_at_s = max(began_at_s, self._done_at_s)
        self._done_at_s = max(self._done_at_s, first_token_at_s)
        busy_s = first_token_at_s - started_at_s
        if tokens >= LEAST_TOKENS and busy_s > 0:
            self._mean.add(tokens, busy_s)

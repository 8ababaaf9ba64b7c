"""Every number that a decision depends on and that an operator may set."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

SCORER_NAMES = ("kv_locality", "queue_depth", "kv_pressure")


@dataclass(frozen=True, slots=True)
class Tunables:
    """Settings of the decisions, with their units in their names.

    Raises ValueError unless `weights` has a weight for each scorer and for nothing else, and where
    a number is below 0.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(SCORER_NAMES, 1.0))
    """What each scorer's seconds are multiplied by."""

    stickiness_s: float = 0.5
    """How much more than the best a session's home may cost before the session moves."""

    placement_slack_s: float = 1.0
    """How much more than the best a replica may cost to be given a new session for its peace."""

    max_session_concurrency: int = 4
    """Requests of one session in flight at its home, from which on the next may go elsewhere."""

    max_cold_prefills: int = 1
    """Cold prefills that run on one replica at a time."""

    cold_prefill_ratio: float = 32.0
    """A prefill this many times the fleet's median is cold ..."""

    cold_prefill_least_s: float = 1.0
    """... if it takes this long."""

    max_park_s: float = 30.0
    """How long a request waits at the router for room, or its session for a place."""

    ttft_slo_s: float = 5.0
    """How much later than in an idle fleet the first token of a turn may come."""

    max_late_ratio: float = 0.1
    """Share of turns that may come later than that, before sessions that do not run must wait."""

    session_hold_s: float = 300.0
    """How long a session that has no turn counts as one that runs."""

    decode_share_ratio: float = 0.02
    """What each decoding request adds to the time of prefills before it."""

    interference_ratio: float = 1.0
    """Seconds that each decoding request loses to each second of prefill beside it."""

    eviction_cost_ratio: float = 4.0
    """Seconds that the fleet loses later to each second of prefill whose KV is evicted now."""

    expect_s: float = 30.0
    """How long blocks are expected where a request for them was sent."""

    remember_s: float = 3600.0
    """How long evicted blocks are remembered."""

    max_remembered_blocks: int = 500_000
    """How many evicted blocks are remembered, at about 100 bytes each."""

    max_shared_blocks: int = 1_000_000
    """How many blocks of the shared tier are known, at about 180 bytes each."""

    booking_expiry_s: float = 1800.0
    """How long a request counts as in flight when its end is never reported."""

    think_s: float = 10.0
    """Think time of a session that was seen once."""

    half_life_thinks: float = 4.0
    """Think times in which the weight of a session between turns halves."""

    session_expiry_s: float = 3600.0
    """How long a session is known after it was last seen."""

    max_sessions: int = 50_000
    """How many sessions are known."""

    max_lineages: int = 16
    """How many lineages of one session are known."""

    def __post_init__(self) -> None:
        """Refuse weights of unknown scorers, missing ones, and numbers below 0."""
        if wrong := set(self.weights) ^ set(SCORER_NAMES):
            known = ", ".join(SCORER_NAMES)
            msg = f"weights must name exactly {known}; missing or unknown: {', '.join(wrong)}"
            raise ValueError(msg)
        numbers = {one.name: getattr(self, one.name) for one in fields(self)} | {**self.weights}
        if negative := [name for name, number in numbers.items() if _is_negative(number)]:
            msg = f"{', '.join(negative)}: must not be below 0"
            raise ValueError(msg)
        if not self.half_life_thinks or not self.think_s:
            msg = "half_life_thinks, think_s: must be above 0"
            raise ValueError(msg)


def _is_negative(value: object) -> bool:
    return isinstance(value, int | float) and value < 0

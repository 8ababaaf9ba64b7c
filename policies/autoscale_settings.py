"""What an operator asks of the autoscaler."""

from dataclasses import dataclass

_ABOVE_ZERO = ("target_prefill_ratio", "max_wait_s", "window_s", "usual_s")
_NOT_BELOW = (
    "target_hit_ratio",
    "headroom_deviations",
    "start_s",
    "slack_ratio",
    "calm_s",
    "settle_s",
    "drain_s",
)


@dataclass(frozen=True, slots=True)
class AutoscaleSettings:
    """What to aim at, within which bounds, and how calmly. Raises ValueError where bounds cross."""

    min_replicas: int = 1
    """At least so many; 0 lets an idle fleet go."""

    max_replicas: int = 16
    """At most so many."""

    target_hit_ratio: float = 0.96
    """Part of the best hit ratio that any memory could give to be reached."""

    target_prefill_ratio: float = 0.5
    """Part of the time in which a replica prefills."""

    headroom_deviations: float = 1.5
    """Room for more running requests than usual, in standard deviations of their number."""

    max_wait_s: float = 30.0
    """How long a backlog of prefills may take once new replicas are up."""

    start_s: float = 180.0
    """How long a new replica takes to serve."""

    window_s: float = 900.0
    """How far back prompts count: long against the pauses of sessions."""

    usual_s: float = 300.0
    """Of how long a time a load is the usual one."""

    slack_ratio: float = 0.1
    """How much more than needed those that stay must have, before any goes ..."""

    calm_s: float = 600.0
    """... and for how long."""

    settle_s: float = 600.0
    """No replica goes so soon after others came."""

    drain_s: float = 120.0
    """How long a replica that will go is kept for the requests that it has."""

    def __post_init__(self) -> None:
        """Refuse bounds that leave no choice, and numbers without a meaning."""
        wrong = [name for name in _ABOVE_ZERO if getattr(self, name) <= 0]
        wrong += [name for name in _NOT_BELOW if getattr(self, name) < 0]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: must be above 0, or not below it")
        if not 0 <= self.min_replicas <= self.max_replicas or not self.max_replicas:
            msg = f"min_replicas {self.min_replicas} and max_replicas {self.max_replicas}"
            raise ValueError(f"{msg}: need 0 <= min <= max, and a max of 1 at least")

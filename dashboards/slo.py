"""The service level objective: how many turns may get their first token late, or an error."""

from dashboards.promql import INTERVAL, rate
from serve_app.metrics import ERRORS, TTFT, TTFT_SLO_S

OBJECTIVE_RATIO = 0.95
"""Share of streamed turns whose first token comes within TTFT_SLO_S."""

BUDGET_RATIO = 1 - OBJECTIVE_RATIO

ERRORS_OF_OURS = ERRORS.series + '{status=~"429|5.."}'
"""Busy, lost, late or broken: those that are not the client's."""


def turns(window: str) -> str:
    """Return how many streamed turns and errors there were."""
    streams = f"sum(increase({TTFT.series}_count[{window}]))"
    errors = f"sum(increase({ERRORS_OF_OURS}[{window}]))"
    return f"({streams} or vector(0)) + ({errors} or vector(0))"


def missed_ratio(window: str = INTERVAL) -> str:
    """Return the share of streamed turns that missed it, and of errors; nothing without any.

    Neither kind exists before the first of it.
    """
    if TTFT_SLO_S not in TTFT.boundaries:
        msg = f"{TTFT_SLO_S} is no boundary of {TTFT.name}"
        raise ValueError(msg)
    in_time = rate(f'{TTFT.series}_bucket{{le="{TTFT_SLO_S}"}}', window=window)
    streams = rate(f"{TTFT.series}_count", window=window)
    errors = rate(ERRORS_OF_OURS, window=window)
    every = f"(({streams} or vector(0)) + ({errors} or vector(0)))"
    return f"1 - ({in_time} or vector(0)) / ({every} > 0)"

"""The service level objective: how many turns may get their first token late, or an error."""

from dashboards.promql import INTERVAL
from serve_app.metrics import ERRORS, TTFT, TTFT_SLO_S

OBJECTIVE_RATIO = 0.95
"""Share of streamed turns whose first token comes within TTFT_SLO_S."""

BUDGET_RATIO = 1 - OBJECTIVE_RATIO

ERRORS_OF_OURS = ERRORS.series + '{status=~"429|5.."}'
"""Busy, lost, late or broken: those that are not the client's."""


def turns(window: str) -> str:
    """Return how many streamed turns and errors there were; neither exists before the first."""
    streams = _grown(f"{TTFT.series}_count", window)
    errors = _grown(ERRORS_OF_OURS, window)
    return f"({streams} or vector(0)) + ({errors} or vector(0))"


def missed_ratio(window: str = INTERVAL) -> str:
    """Return the share of streamed turns that missed it, and of errors; nothing without any."""
    if TTFT_SLO_S not in TTFT.boundaries:
        msg = f"{TTFT_SLO_S} is no boundary of {TTFT.name}"
        raise ValueError(msg)
    in_time = _grown(f'{TTFT.series}_bucket{{le="{TTFT_SLO_S}"}}', window)
    return f"1 - ({in_time} or vector(0)) / (({turns(window)}) > 0)"


def _grown(series: str, window: str) -> str:
    return f"sum(increase({series}[{window}]))"

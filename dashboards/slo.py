"""The service level objective: how many turns may get their first token late."""

from dashboards.promql import INTERVAL, rate, ratio
from serve_app.metrics import TTFT

TTFT_SLO_S = 5.0
"""A boundary of the histogram, so that no estimate is needed."""

OBJECTIVE_RATIO = 0.95
"""Share of streamed turns whose first token comes within TTFT_SLO_S."""

BUDGET_RATIO = 1 - OBJECTIVE_RATIO


def late_ratio(window: str = INTERVAL) -> str:
    """Return the share of streamed turns that missed it; nothing while there were none."""
    if TTFT_SLO_S not in TTFT.boundaries:
        msg = f"{TTFT_SLO_S} is no boundary of {TTFT.name}"
        raise ValueError(msg)
    in_time = rate(f'{TTFT.series}_bucket{{le="{TTFT_SLO_S}"}}', window=window)
    return f"1 - {ratio(in_time, rate(f'{TTFT.series}_count', window=window))}"

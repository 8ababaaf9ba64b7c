"""Series that alerts compare over long windows."""

from dashboards.promql import rate, ratio
from dashboards.rule import Recording
from dashboards.slo import missed_ratio
from serve_app.metrics import CACHED_TOKENS, DISPERSION, EXPECTED_CACHED_TOKENS, PROMPT_TOKENS

MISSED_WINDOWS = ("5m", "30m", "1h", "6h")
HIT_WINDOWS = ("10m", "6h")


def missed(window: str) -> str:
    """Return the name of the share of turns that missed the objective."""
    return f"warmturn:slo_missed:ratio_rate{window}"


def hits(window: str) -> str:
    """Return the name of the share of prompt tokens that engines found cached."""
    return f"warmturn:hit_tokens:ratio_rate{window}"


HITS_OF_EXPECTED = "warmturn:hit_tokens_of_expected:ratio_rate10m"
DISPERSION_MEAN = "warmturn:dispersion_ratio:avg15m"

RECORDINGS = (
    *(Recording(missed(window), missed_ratio(window)) for window in MISSED_WINDOWS),
    *(
        Recording(
            hits(window),
            ratio(
                rate(CACHED_TOKENS.series, window=window), rate(PROMPT_TOKENS.series, window=window)
            ),
        )
        for window in HIT_WINDOWS
    ),
    Recording(
        HITS_OF_EXPECTED,
        ratio(
            rate(CACHED_TOKENS.series, window="10m"),
            rate(EXPECTED_CACHED_TOKENS.series, window="10m"),
        ),
    ),
    Recording(DISPERSION_MEAN, f"avg_over_time({DISPERSION.series}[15m])"),
)

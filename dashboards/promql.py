"""The few forms of PromQL that all queries are made of."""

INTERVAL = "$__rate_interval"
"""What Grafana puts in place of this is wide enough for the scrape interval."""


def rate(series: str, by: str = "", window: str = INTERVAL) -> str:
    """Return how much a counter grows per second, summed but for these labels."""
    summed = f"sum by ({by}) " if by else "sum"
    return f"{summed}(rate({series}[{window}]))"


def quantile(q: float, histogram: str, by: str = "", window: str = INTERVAL) -> str:
    """Return a quantile of a histogram."""
    buckets = rate(f"{histogram}_bucket", ", ".join(filter(None, ("le", by))), window)
    return f"histogram_quantile({q:g}, {buckets})"


def ratio(part: str, whole: str) -> str:
    """Return a part of a whole, both without labels; nothing while the whole is 0."""
    return f"{part} / ({whole} > 0)"


def ratios(parts: str, whole: str) -> str:
    """Return parts, by their labels, of a whole that has none; nothing while the whole is 0."""
    return f"{parts} / on() group_left() ({whole} > 0)"


def counted(series: str, window: str) -> str:
    """Return how much a counter grew that does not exist before it first counts.

    `increase` does not see the step from nothing to the first value. One that was not scraped for
    less than an hour did not begin anew.
    """
    grown = f"sum(increase({series}[{window}]))"
    before = f"last_over_time({series}[1h] offset {window})"
    begun = f"sum(min_over_time({series}[{window}]) unless {before})"
    return f"({grown} or vector(0)) + ({begun} or vector(0))"

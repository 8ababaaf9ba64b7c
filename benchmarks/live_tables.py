"""A replay's rows as they are printed."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

Column = Callable[[dict[str, Any]], Any]

TABLES: dict[str, dict[str, Column]] = {
    "requests and seconds": {
        "requests": lambda row: row["requests"],
        "errors": lambda row: row["errors"],
        "TTFT p50": lambda row: row["ttft_s"]["p50"],
        "p90": lambda row: row["ttft_s"]["p90"],
        "p99": lambda row: row["ttft_s"]["p99"],
        "good/s": lambda row: row["goodput_rps"],
        "dispersion": lambda row: row["dispersion"],
        "moves": lambda row: row["moves"],
    },
    "shares of prompt tokens": {
        "hit": lambda row: row["hit_ratio"],
        "available": lambda row: row["available_ratio"],
        "captured": lambda row: row["captured_ratio"],
        "first seen": lambda row: row["misses"]["first_seen"],
        "evicted": lambda row: row["misses"]["evicted"],
        "elsewhere": lambda row: row["misses"]["elsewhere"],
        "prediction\nerror": lambda row: row["prediction_error_ratio"],
    },
}
"""The rows are cut in two, as a terminal is no wider."""


def tables(rows: list[dict[str, Any]]) -> Iterator[Table]:
    """Yield tables of one row for each of `rows`, which are as `live_figures` makes them."""
    for title, columns in TABLES.items():
        layout: dict[str, Any] = {"box": SIMPLE_HEAD, "padding": 0, "show_edge": False}
        table = Table("policy", *columns, title=title, title_justify="left", **layout)
        for row in rows:
            values = (column(row) for column in columns.values())
            table.add_row(row["policy"], *map(_text, values))
        yield table


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)

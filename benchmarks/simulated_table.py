"""A table of results, one a row, as the simulations print it."""

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Columns = Sequence[tuple[str, Callable[[Any], str]]]
"""Names, the policy's among them, and what each shows of a result."""


def print_table(results: Sequence[Any], columns: Columns, least_width: int) -> None:
    """Print it, no narrower than `least_width` characters, as wrapped numbers can't be read."""
    table = Table(box=None)
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for result in results:
        table.add_row(*(show(result) for _, show in columns))
    console = Console()
    console.width = max(console.width, least_width)
    console.print(table)

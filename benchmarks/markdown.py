"""Tables in Markdown, and the marked places of documents where they stand."""

from collections.abc import Callable, Sequence
from pathlib import Path

import typer

from benchmarks.knee import Knee
from benchmarks.simulated_runs import Spread, is_ours

END = "<!-- end of tables -->"


def publish(report: Callable[[], str], into: Path | None, tables: str) -> None:
    """Print what `report` returns, or put it between a document's marks.

    Raises:
        BadParameter: results or document can't be read, or don't have what is needed.
    """
    try:
        text = report()
        if into:
            into.write_text(replaced(into.read_text(), tables, text))
    except (OSError, ValueError) as wrong:
        raise typer.BadParameter(str(wrong)) from wrong
    if not into:
        print(text)


def replaced(document: str, tables: str, text: str) -> str:
    """Return the document with `text` between these tables' marks; ValueError where it has none."""
    mark = f"<!-- tables: {tables} -->"
    begin = document.find(mark)
    end = document.find(END, begin)
    if not 0 <= begin < end:
        msg = f"there is no {mark} ... {END} in it"
        raise ValueError(msg)
    return f"{document[: begin + len(mark)]}\n{text}\n{document[end:]}"


def commands_block(commands: Sequence[str]) -> str:
    """Return the commands that made the results."""
    return "```\n" + "\n".join(commands) + "\n```"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose rows begin with a policy's name; ours stands out."""
    lines = [head, ["---", *("---:" for _ in head[1:])]]
    lines += [
        [f"**{cell}**" if cell else "" for cell in row] if is_ours(row[0]) else row for row in rows
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread_cell(spread: Spread, form: str) -> str:
    """Return the median, with the least and the most in parentheses unless all are equal."""
    if spread.low == spread.high:
        return f"{spread.median:{form}}"
    return f"{spread.median:{form}} ({spread.low:{form}} to {spread.high:{form}})"


def knee_cell(own: Knee) -> str:
    """Return a knee with its spread; of one beyond the simulated loads, on which side it is."""
    spread = own.load
    low = f"{'< ' if own.below else ''}{spread.low:.1f}"
    high = f"{'> ' if own.above else ''}{spread.high:.1f}"
    if spread.low == spread.high:
        return low if own.below else high
    return f"{spread.median:.1f} ({low} to {high})"

"""Help with misspelt settings."""

import difflib
from collections.abc import Collection


def did_you_mean(key: str, known: Collection[str]) -> str:
    """Return a remark on the known key most like this one, to be appended; empty if none is."""
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""

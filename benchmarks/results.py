"""The JSON file that every benchmark can write."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def given_command(module: str) -> str:
    """Return the command that this process was started with, as `python -m` runs it."""
    return " ".join(["python -m", module, *sys.argv[1:]])


def write_results(path: Path, command: str, rows: Sequence[Any]) -> None:
    """Write the command that gives these rows, and one object per row."""
    path.write_text(json.dumps({"command": command, "results": rows}, indent=1) + "\n")

"""Reads recorded coding-agent sessions: JSON lines, one session a line.

A prompt is given as ids of its full blocks; equal ids of one session are equal blocks. Subagents'
requests, which are nested and rare, are left out.
"""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One turn: what was sent, how much came back, and the pause before it."""

    hash_ids: tuple[range, ...]
    """The prompt's full blocks, in runs."""
    output_tokens: int
    think_s: float


@dataclass(frozen=True, slots=True)
class TraceSession:
    """A session's turns in their order, one at a time."""

    session: str
    block_size: int
    tool_tokens: int
    system_tokens: int
    requests: list[TraceRequest]


def read_sessions(path: Path) -> list[TraceSession]:
    """Return the sessions of a file, gzipped or not; raises OSError, or ValueError for no JSON."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        return [_session(json.loads(line)) for line in lines]


def _session(fields: dict[str, Any]) -> TraceSession:
    return TraceSession(
        session=fields["id"],
        block_size=fields["block_size"],
        tool_tokens=fields["tool_tokens"],
        system_tokens=fields["system_tokens"],
        requests=[
            TraceRequest(
                hash_ids=tuple(range(start, start + count) for start, count in one["hash_ids"]),
                output_tokens=one["out"],
                think_s=one.get("think_time", 0.0),
            )
            for one in fields["requests"]
            if one["type"] != "subagent"
        ],
    )

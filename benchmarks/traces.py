"""Reads recorded sessions: JSON lines, plain or gzipped (.gz), in one of three formats.

- Sessions, one a line, in the format of the public Weka traces of coding agents: `id`,
  `block_size`, `tool_tokens`, `system_tokens` and `requests`, each with `in` and `out` tokens,
  `think_time` in seconds and `hash_ids` in runs `[start, count]`; a `subagent` has `requests` of
  its own. Sessions that we write (write_sessions) have this format too.
- Mooncake's requests, one a line: `timestamp` in ms, `input_length`, `output_length` and
  `hash_ids` of blocks of 512 tokens that mean the same in the whole file. It names no sessions:
  a request that extends an earlier one belongs to that one's.
- What a service of ours recorded, one turn a line (recorded_turns.py).
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.recorded_lines import is_recorded
from benchmarks.recorded_turns import recorded_sessions
from benchmarks.trace_session import Step, TraceRequest, TraceSession

_MOONCAKE_BLOCK_SIZE = 512


def read_sessions(path: Path) -> list[TraceSession]:
    """Return a file's sessions. Raises OSError or ValueError where it can't be read."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as lines:  # some are cut off
        head = list(islice(lines, 2))
        if any(map(is_recorded, head)):
            return recorded_sessions(chain(head, lines), path.name)
        rows = [json.loads(line) for line in chain(head, lines)]
    try:
        if rows and "input_length" in rows[0]:
            return list(_mooncake_sessions(rows, path.name))
        return [_session(row) for row in rows]
    except KeyError as missing:
        msg = f"{path}: a line has no {missing}"
        raise ValueError(msg) from missing


def write_sessions(path: Path, sessions: Iterable[TraceSession]) -> None:
    """Write sessions in the first format, gzipped if the name ends so; one request a step."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as lines:
        for session in sessions:
            row = {
                "id": session.session,
                "block_size": session.block_size,
                "tool_tokens": session.tool_tokens,
                "system_tokens": session.system_tokens,
                "requests": [_row(request) for request in session.requests],
            }
            lines.write(json.dumps(row) + "\n")


def _row(request: TraceRequest) -> dict[str, Any]:
    return {
        "type": "n",
        "in": request.prompt_tokens,
        "out": request.output_tokens,
        "think_time": request.think_s,
        "hash_ids": [[run.start, len(run)] for run in request.hash_ids],
    }


def _session(row: Mapping[str, Any]) -> TraceSession:
    return TraceSession(
        session=row["id"],
        scope=row["id"],
        block_size=row["block_size"],
        tool_tokens=row["tool_tokens"],
        system_tokens=row["system_tokens"],
        steps=tuple(_steps(row["requests"])),
    )


def _steps(rows: Sequence[Mapping[str, Any]]) -> Iterator[Step]:
    """Yield steps: the main thread's requests one by one, subagents beside each other.

    Subagents that stand together run together, and the main thread waits for them.
    """
    for is_subagent, group in groupby(rows, lambda row: row["type"] == "subagent"):
        if is_subagent:
            threads = [[_request(one) for one in row["requests"]] for row in group]
            for step in zip_longest(*threads):
                yield tuple(request for request in step if request)
        else:
            yield from ((_request(row),) for row in group)


def _request(row: Mapping[str, Any]) -> TraceRequest:
    return TraceRequest(
        hash_ids=tuple(range(start, start + count) for start, count in row["hash_ids"]),
        prompt_tokens=row["in"],
        output_tokens=row["out"],
        think_s=row.get("think_time", 0.0),
    )


def _mooncake_sessions(rows: Sequence[Mapping[str, Any]], file: str) -> Iterator[TraceSession]:
    """Yield sessions in the order of their first requests.

    How long an answer took is not recorded, so a pause is all of the time between two requests.
    """
    sessions: list[list[Mapping[str, Any]]] = []
    owners: dict[int, int] = {}
    for row in rows:
        full = row["hash_ids"][: row["input_length"] // _MOONCAKE_BLOCK_SIZE]
        owner = next((owners.pop(block) for block in reversed(full) if block in owners), None)
        if owner is None:
            owner = len(sessions)
            sessions.append([])
        sessions[owner].append(row)
        if full:
            owners[full[-1]] = owner
    for number, requests in enumerate(sessions):
        times_s = [row["timestamp"] / 1000 for row in requests]
        yield TraceSession(
            session=f"{file}-{number}",
            scope=file,
            block_size=_MOONCAKE_BLOCK_SIZE,
            tool_tokens=0,
            system_tokens=0,
            steps=tuple(
                (_mooncake_request(row, now_s - earlier_s),)
                for row, now_s, earlier_s in zip(
                    requests, times_s, chain(times_s[:1], times_s), strict=False
                )
            ),
        )


def _mooncake_request(row: Mapping[str, Any], think_s: float) -> TraceRequest:
    full = row["hash_ids"][: row["input_length"] // _MOONCAKE_BLOCK_SIZE]
    runs = groupby(enumerate(full), lambda item: item[1] - item[0])
    return TraceRequest(
        hash_ids=tuple(
            range(blocks[0], blocks[-1] + 1)
            for blocks in ([block for _, block in run] for _, run in runs)
        ),
        prompt_tokens=row["input_length"],
        output_tokens=row["output_length"],
        think_s=think_s,
    )

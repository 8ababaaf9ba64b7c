"""Reading recorded sessions, and what a replay makes of them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.live_sessions import Pace, Script, from_trace
from benchmarks.traces import TraceRequest, TraceSession, read_sessions

PACE = Pace(ramp_s=1.0, think_s=0.5, think_scale=0.1, max_think_s=3.0)


def request(hash_ids: list[list[int]], **fields: Any) -> dict[str, Any]:
    return {"type": "n", "in": 100, "out": 64, "hash_ids": hash_ids} | fields


def session(name: str, *requests: dict[str, Any], tool_tokens: int = 64) -> dict[str, Any]:
    sizes = {"block_size": 64, "tool_tokens": tool_tokens, "system_tokens": 64}
    return {"id": name, "requests": list(requests)} | sizes


def read(tmp_path: Path, *sessions: dict[str, Any]) -> list[TraceSession]:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in sessions))
    return read_sessions(path)


def scripts(recorded: list[TraceSession], turns: int = 9) -> dict[str, Script]:
    """Return scripts by the recorded session's id."""
    found = from_trace(recorded, turns, tokens_per_block=2, pace=PACE, seed=0)
    return {one.session.removeprefix("live-0-"): one for one in found}


def test_runs_of_ids(tmp_path: Path) -> None:
    """Ids stay in runs; subagents are left out; a missing pause is none."""
    nested = {"type": "subagent", "requests": [request([[1, 1]])]}
    [one] = read(tmp_path, session("a", request([[1, 3], [7, 2]], think_time=5.0), nested))
    assert one.requests == [TraceRequest((range(1, 4), range(7, 9)), 64, 5.0)]
    [one] = read(tmp_path, session("a", request([[1, 3]])))
    assert one.requests[0].think_s == 0


def test_gzipped(tmp_path: Path) -> None:
    """A name that ends in .gz is unpacked."""
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(session("a", request([[1, 3]]))).encode()))
    assert [one.session for one in read_sessions(path)] == ["a"]


def test_equal_ids_are_equal_tokens_within_a_session(tmp_path: Path) -> None:
    """A prompt that shares three ids with the one before shares their tokens, and no more."""
    story = session("a", request([[1, 4]]), request([[1, 3], [9, 2]], think_time=10.0))
    first, second = scripts(read(tmp_path, story))["a"].turns
    assert (len(first.tokens), len(second.tokens)) == (8, 10)
    assert first.tokens[:6] == second.tokens[:6]
    assert first.tokens[6:] != second.tokens[6:8]
    assert (second.think_s, second.answer_tokens, second.extends) == (1.0, 2, False)


@pytest.mark.parametrize(("tool_tokens", "shared"), [(64, 4), (128, 0)])
def test_sessions_share_tools_and_system_prompt(
    tmp_path: Path, tool_tokens: int, shared: int
) -> None:
    """Ids are local, so the prefix is shared where its two lengths are equal, and only it."""
    recorded = read(
        tmp_path,
        session("a", request([[1, 4]])),
        session("b", request([[5, 4]]), tool_tokens=tool_tokens),
    )
    made = scripts(recorded)
    a, b = made["a"].turns[0].tokens, made["b"].turns[0].tokens
    assert a[:shared] == b[:shared]
    assert a[shared:] != b[shared:]
    assert all(x != y for x, y in zip(a[shared:], b[shared:], strict=True))


def test_pauses_are_bounded_and_turns_too(tmp_path: Path) -> None:
    """A night's pause ends at the bound; no more turns than wanted are taken."""
    story = session("a", *(request([[1, n]], think_time=9999.0) for n in range(1, 6)))
    turns = scripts(read(tmp_path, story), turns=3)["a"].turns
    assert len(turns) == 3
    assert turns[0].think_s <= PACE.ramp_s
    assert [turn.think_s for turn in turns[1:]] == [3.0, 3.0]

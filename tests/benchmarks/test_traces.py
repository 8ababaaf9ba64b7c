"""Reading, generating and changing recorded sessions."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generated_sessions import generate_sessions
from benchmarks.trace_options import Part, add_bursts, fit, part_of, share_prefix, shrink
from benchmarks.trace_session import TraceRequest, TraceSession, common_blocks
from benchmarks.trace_summary import summary
from benchmarks.traces import read_sessions, write_sessions

PUBLIC_TRACE = Path(os.environ.get("WARMTURN_TRACE", "../shared/traces/weka_agentic_dev.jsonl.gz"))


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def recorded(start: int, blocks: int, **fields: Any) -> dict[str, Any]:
    return {"type": "n", "in": blocks * 64 + 5, "out": 7, "hash_ids": [[start, blocks]]} | fields


def make_session(*prompt_tokens: int, think_s: float = 1.0) -> TraceSession:
    """Return a session of prompts that extend each other."""
    steps = tuple(
        (TraceRequest((range(1, 1 + tokens // 64),), tokens, 10, think_s),)
        for tokens in prompt_tokens
    )
    return TraceSession("s", "s", 64, 128, 64, steps)


def test_a_summary_counts_what_each_turn_adds() -> None:
    """Two prompts of which the second has four blocks more and a rest."""
    text = summary([make_session(640, 900)])
    assert text.startswith("1 sessions, 2 requests")
    assert "| ... of them new since the step before | 260 | 260 | 260 | 260 | 260 |" in text
    assert text.endswith(
        "100% grew by at least the answer to it. Answers are 4% of what they grew by."
    )


def test_subagents_run_beside_each_other(tmp_path: Path) -> None:
    """Consecutive subagents make steps of one request of each; the main thread goes on after."""
    row = {
        "id": "a",
        "block_size": 64,
        "tool_tokens": 100,
        "system_tokens": 30,
        "requests": [
            recorded(1, 2, think_time=3.5),
            {"type": "subagent", "requests": [recorded(10, 1), recorded(10, 3)]},
            {"type": "subagent", "requests": [recorded(20, 1)]},
            recorded(1, 4),
        ],
    }
    [session] = read_sessions(write_lines(tmp_path / "t.jsonl", row))
    starts = [[one.hash_ids[0].start for one in step] for step in session.steps]
    assert starts == [[1], [10, 20], [10], [1]]
    assert session.requests[0] == TraceRequest((range(1, 3),), 133, 7, 3.5)


def test_mooncake_sessions_are_found_by_what_they_extend(tmp_path: Path) -> None:
    """A request that extends an earlier one's full blocks follows it; others begin sessions."""
    rows = [
        {"timestamp": t, "input_length": n, "output_length": 9, "hash_ids": ids}
        for t, n, ids in (
            (0, 1100, [1, 2, 3]),  # the third block isn't full
            (2000, 1100, [1, 7, 8]),
            (5000, 1700, [1, 2, 4, 5]),
        )
    ]
    first, second = read_sessions(write_lines(tmp_path / "m.jsonl", *rows))
    assert [one.hash_ids for one in first.requests] == [(range(1, 3),), (range(1, 3), range(4, 5))]
    assert [one.think_s for one in first.requests] == [0.0, 5.0]
    assert (first.scope, first.block_size) == (second.scope, 512)


def test_a_line_without_a_field_is_named(tmp_path: Path) -> None:
    """What is missing is said, and where."""
    with pytest.raises(ValueError, match=r"t\.jsonl: a line has no 'block_size'"):
        read_sessions(write_lines(tmp_path / "t.jsonl", {"id": "a"}))


def test_generated_sessions_can_be_written_and_read(tmp_path: Path) -> None:
    """The same seed gives the same sessions, and a file keeps them."""
    sessions = generate_sessions(5, 1)
    write_sessions(tmp_path / "g.jsonl.gz", sessions)
    assert read_sessions(tmp_path / "g.jsonl.gz") == sessions == generate_sessions(5, 1)
    assert sessions != generate_sessions(5, 2)


def test_fit_leaves_out_what_is_too_long() -> None:
    """Prompts longer than the context go, longer pauses are cut, an empty session goes whole."""
    long = make_session(100, 1000, 200, think_s=900.0)
    [kept] = fit([long, make_session(1000)], max_context_tokens=300, max_think_s=60.0)
    assert [(one.prompt_tokens, one.think_s) for one in kept.requests] == [(100, 60.0), (200, 60.0)]


def test_shrink_keeps_the_number_of_blocks() -> None:
    """Lengths and blocks get smaller together."""
    [small] = shrink([make_session(640)], 32)
    [request] = small.requests
    assert (small.block_size, request.prompt_tokens) == (2, 20)
    assert request.hash_ids == (range(1, 11),)
    with pytest.raises(ValueError, match="does not divide"):
        shrink([make_session(640)], 24)


def test_shared_prefix_is_tools_and_system() -> None:
    """As many whole blocks as tools and system prompt have are shared."""
    assert share_prefix([make_session(640)])[0].shared_blocks == 3


def test_bursts_fork_the_prompt_before_them() -> None:
    """After each fourth step come `size` requests that share its prompt and nothing else."""
    [thick] = add_bursts([make_session(*[640] * 9)], 1.0, 3, max_context_tokens=2000, seed=1)
    assert [len(step) for step in thick.steps] == [1, 1, 1, 1, 3, 1, 1, 1, 1, 3, 1]
    assert thick.bursts == frozenset({4, 9})
    assert list(thick.own_steps) == [0, 1, 2, 3, 5, 6, 7, 8, 10]
    burst = thick.steps[4]
    assert all(common_blocks(one.hash_ids, thick.steps[3][0].hash_ids) == 10 for one in burst)
    assert common_blocks(burst[0].hash_ids, burst[1].hash_ids) == 10


def test_bursts_fit_the_context() -> None:
    """A prompt of 640 tokens with 1,024 of a subagent's own is too long for 1,600."""
    session = make_session(*[640] * 9)
    [thick] = add_bursts([session], 1.0, 3, max_context_tokens=1600, seed=1)
    assert thick == replace(session, bursts=frozenset())


def test_the_same_sessions_are_thick_whatever_they_send() -> None:
    """So what a run with bursts did to the others can be told from one without."""
    sessions = generate_sessions(40, 1)
    bursts, none = (add_bursts(sessions, 0.25, size, 10**6, seed=1) for size in (3, 0))
    assert [one.bursts is not None for one in bursts] == [one.bursts is not None for one in none]
    assert sum(one.bursts is not None for one in none) == 10
    assert [one.steps for one in none] == [one.steps for one in sessions]


def test_parts_are_disjoint() -> None:
    """Each session is for tuning or for judging, about two thirds and one third."""
    sessions = generate_sessions(200, 1)
    tune, judge = part_of(sessions, Part.TUNE), part_of(sessions, Part.JUDGE)
    assert sorted(one.session for one in tune + judge) == sorted(one.session for one in sessions)
    assert 40 <= len(judge) <= 90


@pytest.mark.skipif(not PUBLIC_TRACE.exists(), reason=f"there is no trace at {PUBLIC_TRACE}")
def test_the_public_trace() -> None:
    """All of its sessions are read, and each prompt's blocks are those that it fills."""
    sessions = read_sessions(PUBLIC_TRACE)
    assert len(sessions) == 523
    for session in sessions:
        for one in session.requests:
            assert sum(map(len, one.hash_ids)) == one.prompt_tokens // 64

"""Reads what a service recorded (`record` in serve.yaml) as sessions to replay.

Turns of a session that overlap in time become requests beside each other, as subagents are: those
that followed each other among them still do. A pause is the time from the end of one turn to the
arrival of the next. Blocks that several sessions have are the same in every replay.

A turn that got no first token is left out, as what it would have asked of an engine is not known.
The blocks of a prompt that was not rendered are unknown: it has none in common with any other.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from benchmarks.block_names import ids_of, runs_of
from benchmarks.recorded_lines import RecordedLines, RecordedRequest
from benchmarks.trace_session import Step, TraceRequest, TraceSession, common_blocks


def recorded_sessions(lines: Iterable[str], file: str) -> list[TraceSession]:
    """Return the sessions in the order of their first turns.

    Lines that are of no use, as the last one of a process that was killed, are skipped with a
    warning. Raises ValueError where blocks have several sizes, or there are none.
    """
    found = RecordedLines(file)
    found.read(lines)
    if found.block_size is None:
        raise ValueError(f"{file}: no turn has blocks")
    turns = sorted(found.turns, key=lambda turn: turn.arrived_s)
    sessions: defaultdict[str, list[RecordedRequest]] = defaultdict(list)
    for turn in turns:
        sessions[turn.session].append(turn)
        if turn.hash_ids is None:
            blocks = turn.recorded.prompt_tokens // found.block_size
            turn.hash_ids = runs_of(found.names.unknown(turn.session, blocks))
    others, common_below = found.names.common_first()
    for turn in turns:
        assert turn.hash_ids is not None
        turn.hash_ids = runs_of(others[ids_of(turn.hash_ids)])
    return [
        TraceSession(
            session=session,
            scope=file,
            block_size=found.block_size,
            tool_tokens=0,
            system_tokens=0,
            steps=tuple(_steps(own)),
            common_below=common_below,
        )
        for session, own in sessions.items()
    ]


def _steps(turns: Sequence[RecordedRequest]) -> Iterator[Step]:
    """Yield the steps of a session's turns, which are in the order of their arrival."""
    ended_s = turns[0].arrived_s
    for together in _overlapping(turns):
        threads: list[list[tuple[RecordedRequest, TraceRequest]]] = []
        for turn in together:
            thread = _thread(threads, turn)
            before_s = thread[-1][0].ended_s if thread else ended_s
            thread.append((turn, _request(turn, turn.arrived_s - before_s)))
        for step in zip_longest(*threads):
            yield tuple(one[1] for one in step if one)
        ended_s = max(turn.ended_s for turn in together)


def _overlapping(turns: Sequence[RecordedRequest]) -> Iterator[list[RecordedRequest]]:
    """Yield turns in groups; each begins when all before it have ended."""
    group: list[RecordedRequest] = []
    ended_s = turns[0].arrived_s
    for turn in turns:
        if group and turn.arrived_s >= ended_s:
            yield group
            group = []
        group.append(turn)
        ended_s = max(ended_s, turn.ended_s)
    yield group


def _thread(
    threads: list[list[tuple[RecordedRequest, TraceRequest]]], turn: RecordedRequest
) -> list[tuple[RecordedRequest, TraceRequest]]:
    """Return the turns that one follows: of those that ended, what it has most in common with."""
    free = [one for one in threads if one[-1][0].ended_s <= turn.arrived_s]
    if not free:
        threads.append([])
        return threads[-1]
    blocks = turn.hash_ids or ()
    return max(free, key=lambda one: common_blocks(one[-1][1].hash_ids, blocks))


def _request(turn: RecordedRequest, think_s: float) -> TraceRequest:
    assert turn.hash_ids is not None
    return TraceRequest(
        hash_ids=turn.hash_ids,
        prompt_tokens=turn.recorded.prompt_tokens,
        output_tokens=turn.recorded.output_tokens,
        think_s=max(0.0, think_s),
    )

"""What was recorded, read as sessions: its blocks, its order in time, and lines that are broken."""

import gzip
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.block_names import ids_of
from benchmarks.recorded_turns import recorded_sessions
from benchmarks.simulator.turn import LiveSession
from benchmarks.trace_session import TraceSession
from benchmarks.trace_summary import summary
from benchmarks.traces import read_sessions
from policies.block_hash import hash_blocks, root_hash
from serve_app.last_hashes import LastHashes
from serve_app.recorded_turn import Hashes, RecordedTurn, encode, pack
from serve_app.replica_report import Outcome

BEGAN = datetime(2026, 1, 31, tzinfo=UTC)
SIZE = 4


def hashes_of(*blocks: int) -> Hashes:
    """Return the hashes of a prompt; the same numbers from the beginning are the same blocks."""
    tokens = np.repeat(np.array(blocks, np.int64), SIZE)
    return np.array(hash_blocks(root_hash("m", SIZE), tokens, SIZE), np.uint64)


class Recording:
    """Lines as they are written."""

    def __init__(self, max_hashes: int = 10_000) -> None:
        self.lines: list[str] = []
        self._last = LastHashes(max_hashes)

    def add(
        self,
        session: str,
        at_s: float,
        took_s: float,
        *blocks: int,
        ttft_s: float | None = 0.1,
        prompt_tokens: int | None = None,
    ) -> None:
        """Add a turn whose prompt is these blocks and one more token, unless it is not read."""
        hashes = hashes_of(*blocks)
        same = self._last.same_blocks(session, hashes)
        if len(hashes):
            self._last.put(session, hashes)
        turn = RecordedTurn(
            arrived_at=BEGAN + timedelta(seconds=at_s),
            session=session,
            request="q",
            outcome=Outcome.ANSWERED,
            prompt_tokens=prompt_tokens or len(blocks) * SIZE + 1,
            output_tokens=3,
            e2e_s=took_s,
            ttft_s=ttft_s,
            block_size=SIZE,
            same_blocks=same,
            blocks=pack(hashes[same:]),
        )
        self.lines.append(encode(turn).decode())

    def read(self) -> list[TraceSession]:
        """Return its sessions."""
        return recorded_sessions(self.lines, "file")


prompts = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 2), min_size=1, max_size=6)),
    min_size=1,
    max_size=20,
)


@given(prompts, st.sampled_from((40, 10_000)))
def test_equal_blocks_stay_equal(said: Sequence[tuple[str, list[int]]], max_hashes: int) -> None:
    """Two blocks have one id if and only if their hashes were equal, also across sessions."""
    recording = Recording(max_hashes)
    written: dict[str, list[Hashes]] = {}
    for number, (session, blocks) in enumerate(said):
        recording.add(session, number * 10.0, 1.0, *blocks)
        written.setdefault(session, []).append(hashes_of(*blocks))
    ids: dict[int, int] = {}
    users: dict[int, set[str]] = {}
    sessions = recording.read()
    for one in sessions:
        found = [ids_of(request.hash_ids) for step in one.steps for request in step]
        for names, hashes in zip(found, written[one.session], strict=True):
            for name, block in zip(names.tolist(), hashes.tolist(), strict=True):
                assert ids.setdefault(block, name) == name
                users.setdefault(name, set()).add(one.session)
    assert len(set(ids.values())) == len(ids)
    common = {name for name, who in users.items() if len(who) > 1}
    assert common == set(range(sessions[0].common_below))


def test_turns_that_overlap_run_beside_each_other() -> None:
    """Two subagents of two turns each, while the main thread waits; pauses are their own."""
    recording = Recording()
    recording.add("a", 0, 5, 1)
    recording.add("a", 7, 3, 1, 2)  # one subagent: 7 to 10, 12 to 14
    recording.add("a", 8, 10, 1, 3)  # the other: 8 to 18, 19 to 20
    recording.add("a", 12, 7.5, 1, 2, 4)
    recording.add("a", 19, 1, 1, 3, 5)
    recording.add("a", 30, 1, 1, 6)
    [session] = recording.read()
    pauses = [[round(one.think_s, 3) for one in step] for step in session.steps]
    assert pauses == [[0], [2, 3], [2, 1], [10]]
    sizes = [[one.prompt_tokens for one in step] for step in session.steps]
    assert sizes == [[5], [9, 9], [13, 13], [9]]


def test_common_blocks_are_common_in_a_replay() -> None:
    """A system prompt that sessions share is in every replay; what is their own is not."""
    recording = Recording()
    recording.add("a", 0, 1, 1, 2, 3)
    recording.add("b", 5, 1, 1, 2, 4)
    a, b = recording.read()
    turns = [
        LiveSession(session, replay).next_step(0.0)[0][1].request.hashes
        for replay, session in enumerate((a, b, a))
    ]
    assert turns[0][:2] == turns[1][:2] == turns[2][:2]
    assert len({hashes[2] for hashes in turns}) == 3


def test_a_line_that_was_cut_off_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names it; what went on from unknown lines is left out until a whole one."""
    recording = Recording()
    recording.add("a", 0, 1, 1, 2)
    recording.add("b", 5, 1, 1, 3)
    recording.add("b", 10, 1, 1, 3, 4)
    recording.lines[1] = recording.lines[1][:70]
    path = tmp_path / "turns.jsonl"
    path.write_text("\n".join(recording.lines))
    with caplog.at_level(logging.WARNING):
        [session] = read_sessions(path)
    assert session.session == "a"
    assert "turns.jsonl: line 2 is skipped" in caplog.text
    assert "1 lines go on from lines that are gone" in caplog.text


@pytest.mark.parametrize("name", ["turns.jsonl", "turns.jsonl.gz"])
def test_a_line_that_was_cut_off_within_a_letter_is_skipped(name: str, tmp_path: Path) -> None:
    """What is said and what sessions are called has letters of several bytes."""
    recording = Recording()
    recording.add("\u00e9t\u00e9", 0, 1, 1, 2)
    recording.add("b", 5, 1, 1, 3)
    first, second = (line.encode() for line in recording.lines)
    cut = first[: first.index("\u00e9".encode()) + 1]
    path = tmp_path / name
    with (gzip.open if path.suffix == ".gz" else open)(path, "wb") as file:
        file.write(b"\n".join((second, first, cut, b"")))
    assert [one.session for one in read_sessions(path)] == ["\u00e9t\u00e9", "b"]


def test_turns_without_an_answer_or_blocks(caplog: pytest.LogCaptureFixture) -> None:
    """The former are left out, the latter are like no other; later lines go on from the rest."""
    recording = Recording()
    recording.add("a", 0, 1, 1, 2)
    recording.add("a", 2, 1, 1, 2, 3, ttft_s=None)
    recording.add("a", 5, 1, prompt_tokens=2 * SIZE + 1)
    recording.add("a", 9, 1, 1, 2, 3, 4)
    [session] = recording.read()
    first, unread, last = (ids_of(one.hash_ids).tolist() for one in session.requests)
    assert last[:2] == first
    assert len(set(last)) == 4
    assert len(set(unread) - set(last)) == len(unread) == 2
    assert "1 turns got no answer" in caplog.text


def test_blocks_of_several_sizes_are_refused() -> None:
    """Nothing could be said of what they share."""
    recording = Recording()
    recording.add("a", 0, 1, 1)
    recording.add("a", 5, 1, 1)
    recording.lines[1] = recording.lines[1].replace('"block_size":4', '"block_size":8')
    with pytest.raises(ValueError, match="file: line 2: blocks of 8 tokens, not 4"):
        recording.read()


def test_a_recording_without_blocks_is_refused() -> None:
    """There is nothing to replay."""
    recording = Recording()
    recording.add("a", 0, 1)
    with pytest.raises(ValueError, match="no turn has blocks"):
        recording.read()


def test_a_recording_can_be_summed_up() -> None:
    """Also one in which nobody came again: there is nothing to say of growth then."""
    recording = Recording()
    recording.add("a", 0, 1, 1)
    text = summary(recording.read())
    assert text.startswith("1 sessions, 1 requests")
    assert "| prompt tokens | 5.0 |" in text
    assert "new since" not in text
    assert "extend" not in text

"""Lines on their way to a file, and what happens to them where that is full, gone or slow."""

import base64
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app import record_writer
from serve_app.last_hashes import LastHashes
from serve_app.record_counts import RecordCounts
from serve_app.record_writer import FinishedTurn, RecordWriter
from serve_app.recorded_turn import RecordedTurn, pack, same_blocks, unpack
from serve_app.replica_report import Outcome
from tests.patience import wait_until


def make_finished(session: str, *hashes: int, size_bytes: int = 100) -> FinishedTurn:
    """Return a turn of a prompt with these blocks."""
    turn = RecordedTurn(
        arrived_at=datetime.now(UTC),
        session=session,
        request="q",
        outcome=Outcome.ANSWERED,
        prompt_tokens=9,
        block_size=4,
    )
    return FinishedTurn(turn, np.array(hashes, np.uint64), size_bytes)


class FakeFile:
    """Keeps lines in memory, and fails or hangs when told to."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.is_new = True
        self.error: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.closed = False

    def prepare(self) -> bool:
        was_new, self.is_new = self.is_new, False
        return was_new

    def append(self, line: bytes) -> None:
        self.goes_on.wait()
        if self.error:
            self.is_new = True
            raise self.error
        self.lines.append(json.loads(line))

    def close(self) -> None:
        self.closed = True


def until(condition: Callable[[], Any]) -> None:
    """Wait for the writer's thread."""
    wait_until(lambda: bool(condition()), within_s=5)


def same(lines: list[dict[str, Any]]) -> list[int]:
    """Return of each line how many blocks it leaves out."""
    return [line.get("same_blocks", 0) for line in lines]


def test_only_new_blocks_are_written() -> None:
    """Those that the session's last line has are left out, whatever others wrote meanwhile."""
    file, counts = FakeFile(), RecordCounts()
    writer = RecordWriter(file, counts)
    for session, *hashes in (("a", 1, 2), ("b", 1, 2, 3), ("a", 1, 2, 4), ("a", 1, 5), ("a",)):
        writer.offer(make_finished(session, *hashes))
    writer.offer(make_finished("a", 1, 5, 6))
    writer.close()
    until(lambda: file.closed)
    assert same(file.lines) == [0, 0, 2, 1, 0, 2]
    assert unpack(file.lines[3]["blocks"]).tolist() == [5]
    assert counts.recorded == 6


def test_a_new_file_begins_with_whole_lines() -> None:
    """Who reads it does not have the older one."""
    file = FakeFile()
    writer = RecordWriter(file, RecordCounts())
    writer.offer(make_finished("a", 1, 2))
    until(lambda: file.lines)
    file.is_new = True
    writer.offer(make_finished("a", 1, 2, 3))
    until(lambda: len(file.lines) == 2)
    writer.close()
    assert same(file.lines) == [0, 0]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("defect")])
def test_a_disk_that_fails_is_told_of_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it works again; what came meanwhile is counted, and later lines do not need it."""
    file, counts = FakeFile(), RecordCounts()
    writer = RecordWriter(file, counts)
    writer.offer(make_finished("a", 1))
    until(lambda: counts.recorded == 1)
    file.error = error
    for _ in range(3):
        writer.offer(make_finished("a", 1, 2))
    until(lambda: counts.failed == 3)
    assert writer.error == str(error)
    # Threads of other tests may still tell of spans.
    assert len([one for one in caplog.records if one.name == record_writer.__name__]) == 1
    file.error = None
    writer.offer(make_finished("a", 1, 2))
    until(lambda: counts.recorded == 2)
    until(lambda: writer.error is None)
    writer.close()
    assert same(file.lines) == [0, 0]


def test_a_slow_disk_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into memory is dropped and counted; the rest is written in the end."""
    monkeypatch.setattr(record_writer, "MAX_PENDING_BYTES", 1000)
    file, counts = FakeFile(), RecordCounts()
    file.goes_on.clear()
    writer = RecordWriter(file, counts)
    for _ in range(30):
        writer.offer(make_finished("a", 1))
    assert 19 <= counts.dropped <= 20  # the thread may have taken one already
    file.goes_on.set()
    until(lambda: counts.recorded + counts.dropped == 30)
    writer.close()


hashes = st.lists(st.integers(0, 2**64 - 1), max_size=20)


@given(hashes, hashes)
def test_hashes_survive_a_line(one: list[int], other: list[int]) -> None:
    """All 64 bits of them; and the common ones are counted from the beginning."""
    first, second = np.array(one, np.uint64), np.array(other, np.uint64)
    assert unpack(pack(first)).tolist() == one
    common = same_blocks(first, second)
    assert one[:common] == other[:common]
    assert one[common : common + 1] != other[common : common + 1] or common in (
        len(one),
        len(other),
    )


@pytest.mark.parametrize("text", ["?", base64.b64encode(b"seven b").decode()])
def test_what_is_no_hash_is_refused(text: str) -> None:
    """Other characters, and other than 8 bytes each."""
    with pytest.raises(ValueError, match=r"Base64|base64|padding|multiple"):
        unpack(text)


def test_the_hashes_of_old_sessions_are_forgotten() -> None:
    """So that they take no more memory than is set; a session's later prompt replaces its first."""
    last = LastHashes(200)
    prompts = {name: np.arange(50, dtype=np.uint64) + 100 * i for i, name in enumerate("abc")}
    for name in "aab":
        last.put(name, prompts[name])
    assert [last.same_blocks(name, prompts[name]) for name in "ab"] == [50, 50]
    last.put("c", prompts["c"])
    assert [last.same_blocks(name, prompts[name]) for name in "abc"] == [0, 50, 50]

"""Writes finished turns to a file, on a thread of its own."""

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Protocol

import msgspec

from serve_app.last_hashes import LastHashes
from serve_app.record_counts import RecordCounts
from serve_app.recorded_turn import Hashes, RecordedTurn, encode, pack

logger = logging.getLogger(__name__)

MAX_PENDING_BYTES = 64 * 2**20
"""Turns that are not written yet; beyond it they are dropped."""

MAX_HASHES = 4_000_000
"""Of sessions' last prompts: 32 MB."""


class Lines(Protocol):
    """Where lines go; RecordFile is the real one."""

    def prepare(self) -> bool:
        """Be ready for a line, as RecordFile.prepare is."""

    def append(self, line: bytes) -> None:
        """Write a line, as RecordFile.append does."""

    def close(self) -> None:
        """Let go of the file."""


@dataclass(frozen=True, slots=True)
class FinishedTurn:
    """A turn whose blocks are still whole, and how much memory it takes."""

    turn: RecordedTurn
    hashes: Hashes
    size_bytes: int


class RecordWriter:
    """Takes turns from an event loop and never lets it wait.

    What does not fit into MAX_PENDING_BYTES is dropped, and so is what cannot be written; each turn
    is counted. `error` says why the last one failed, which is logged once, until writing works.
    """

    def __init__(self, file: Lines, counts: RecordCounts) -> None:
        self._counts = counts
        self.error: str | None = None
        self._file = file
        self._last = LastHashes(MAX_HASHES)
        self._pending: deque[FinishedTurn] = deque()
        self._pending_bytes = 0
        self._closed = False
        self._news = threading.Condition()
        threading.Thread(target=self._run, name="record", daemon=True).start()

    def offer(self, turn: FinishedTurn) -> None:
        """Let a turn be written soon, or drop it."""
        with self._news:
            if self._pending_bytes + turn.size_bytes > MAX_PENDING_BYTES:
                self._counts.dropped += 1
                return
            self._pending.append(turn)
            self._pending_bytes += turn.size_bytes
            self._news.notify()

    def close(self) -> None:
        """Let the thread end once it has written what was offered; does not wait for that."""
        with self._news:
            self._closed = True
            self._news.notify()

    def _run(self) -> None:
        while turn := self._next():
            try:
                self._write(turn)
            except Exception as error:  # the thread must outlive all of them
                self._fail(error)
            else:
                self._counts.recorded += 1
                if self.error:
                    logger.warning("turns are recorded again")
                    self.error = None
        self._file.close()

    def _next(self) -> FinishedTurn | None:
        """Return the next turn once there is one; None if there will be none."""
        with self._news:
            self._news.wait_for(lambda: self._pending or self._closed)
            if not self._pending:
                return None
            turn = self._pending.popleft()
            self._pending_bytes -= turn.size_bytes
            return turn

    def _write(self, finished: FinishedTurn) -> None:
        turn, hashes = finished.turn, finished.hashes
        if self._file.prepare():
            self._last.clear()  # a reader may not have the lines that these are of
        if len(hashes) and turn.session is not None:
            same = self._last.same_blocks(turn.session, hashes)
            turn = msgspec.structs.replace(turn, same_blocks=same, blocks=pack(hashes[same:]))
        self._file.append(encode(turn))
        if len(hashes) and turn.session is not None:
            self._last.put(turn.session, hashes)

    def _fail(self, error: Exception) -> None:
        self._counts.failed += 1
        if self.error is None:
            unexpected = None if isinstance(error, OSError) else error
            logger.error("a turn is not recorded: %s", error, exc_info=unexpected)
        self.error = str(error)

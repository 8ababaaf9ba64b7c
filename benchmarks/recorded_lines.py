"""The turns that a service recorded, as its lines have them; those of no use are left out."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np

from benchmarks.block_names import BlockNames, Ids, ids_of, runs_of
from serve_app.recorded_turn import NO_HASHES, Hashes, RecordedTurn, decode, unpack

logger = logging.getLogger(__name__)


def is_recorded(line: str) -> bool:
    """Tell whether this is a line that a service recorded, and whole."""
    try:
        decode(line)
    except msgspec.DecodeError:
        return False
    return True


@dataclass(slots=True)
class RecordedRequest:
    """A turn that is to be replayed; `hash_ids` are its blocks, None where they are not known."""

    recorded: RecordedTurn
    session: str
    hash_ids: tuple[range, ...] | None

    @property
    def arrived_s(self) -> float:
        """When it came, in seconds since 1970."""
        return self.recorded.arrived_at.timestamp()

    @property
    def ended_s(self) -> float:
        """When its answer was complete."""
        one = self.recorded
        return self.arrived_s + (one.waited_s or 0.0) + (one.e2e_s or one.ttft_s or 0.0)


class RecordedLines:
    """Turns of a file's lines, one after another. A line that is of no use is skipped."""

    def __init__(self, file: str) -> None:
        self.names = BlockNames()
        self.turns: list[RecordedRequest] = []
        self.block_size: int | None = None
        self._file = file
        self._last: dict[str, tuple[Hashes, Ids]] = {}
        """The hashes that the next line of a session may go on from, and their ids."""

    def read(self, lines: Iterable[str]) -> None:
        """Take the turns in. Raises ValueError where blocks have several sizes."""
        orphans = answerless = 0
        for number, line in enumerate(lines, 1):
            try:
                recorded = decode(line)
                new = unpack(recorded.blocks)
            except ValueError as wrong:
                logger.warning("%s: line %d is skipped: %s", self._file, number, wrong)
                self._last.clear()  # it may be what later ones go on from
                continue
            session = recorded.session or recorded.request
            ids: Ids | None = None
            if len(new) or recorded.same_blocks:
                ids = self._ids(session, recorded, new, number)
                if ids is None:
                    orphans += 1
                    continue
            if recorded.ttft_s is None:
                answerless += 1
                continue
            hash_ids = None if ids is None else runs_of(ids)
            without = msgspec.structs.replace(recorded, blocks="", body=None)
            self.turns.append(RecordedRequest(without, session, hash_ids))
        if orphans:
            logger.warning("%s: %d lines go on from lines that are gone", self._file, orphans)
        if answerless:
            logger.warning("%s: %d turns got no answer: left out", self._file, answerless)

    def _ids(self, session: str, line: RecordedTurn, new: Hashes, number: int) -> Ids | None:
        """Return the ids of a prompt's blocks; None where it goes on from what is not known."""
        if line.block_size != (self.block_size or line.block_size):
            msg = f"{self._file}: line {number}: blocks of {line.block_size} tokens, not "
            raise ValueError(f"{msg}{self.block_size} as before: split the file there")
        self.block_size = line.block_size
        hashes, ids = self._last.pop(session, (NO_HASHES, ids_of(())))
        same = line.same_blocks
        if same > len(hashes):
            return None
        found = np.concatenate([ids[:same], self.names.of(session, new)])
        self._last[session] = np.concatenate([hashes[:same], new]), found
        return found

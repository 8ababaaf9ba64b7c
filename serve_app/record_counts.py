"""How many turns were recorded, and how many were not, since the router started."""

from dataclasses import dataclass
from enum import StrEnum


class Unrecorded(StrEnum):
    """Why a turn is not in the file."""

    UNSEEN = "unseen"
    """It ended, and this router had not seen it arrive or had no room to remember it."""
    DROPPED = "dropped"
    """Too many waited to be written."""
    FAILED = "failed"
    """It could not be written."""


@dataclass(slots=True)
class RecordCounts:
    """Turns. Each is counted by one thread alone."""

    recorded: int = 0
    unseen: int = 0
    dropped: int = 0
    failed: int = 0

    @property
    def unrecorded(self) -> dict[Unrecorded, int]:
        """Those that are not in the file, by why."""
        return {
            Unrecorded.UNSEEN: self.unseen,
            Unrecorded.DROPPED: self.dropped,
            Unrecorded.FAILED: self.failed,
        }

"""The last prompts of each session: how much of a new one was there before."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from threading import Lock

import numpy as np

from policies.turn import Turn
from policies.types import SessionId
from serve_app.prompt_hashes import PromptHashes
from serve_app.segment_encoder import Ids

GENERATION_PROMPT_TOKENS = 16
"""The end of a prompt that asks for an answer; templates write it otherwise once it has one."""


@dataclass(slots=True, eq=False)
class RememberedPrompt:
    """What is kept of a prompt, for its session's next ones.

    `turn` is None where no chat template made it. `hashes` is set, once, by whoever hashes it.
    """

    segments: Sequence[Ids]
    turn: Turn | None = None
    hashes: PromptHashes | None = None

    @property
    def tokens(self) -> int:
        """How long it is."""
        return sum(map(len, self.segments))


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many leading tokens a prompt shares with an earlier one of its session."""

    earlier: RememberedPrompt
    tokens: int

    @property
    def is_continued(self) -> bool:
        """Whether all of the earlier prompt is there, but for how it asked for an answer."""
        return 0 < self.tokens >= self.earlier.tokens - GENERATION_PROMPT_TOKENS


class LastPrompts:
    """The prompts of the last `max_sessions` sessions, `max_lineages` of each.

    A session can have several lineages at a time, such as its main thread and its subagents. Any
    thread may call it.
    """

    def __init__(self, max_sessions: int, max_lineages: int) -> None:
        self._max_sessions = max_sessions
        self._max_lineages = max_lineages
        self._sessions: OrderedDict[SessionId, list[RememberedPrompt]] = OrderedDict()
        self._lock = Lock()

    def add(self, session: SessionId | None, prompt: RememberedPrompt) -> Overlap | None:
        """Note a prompt; return what it shares with the session's most alike, or None if it is new.

        Of several that are as much alike, the newest is meant. The prompt takes the place of the
        one that it continues, or of the session's oldest.
        """
        if session is None:
            return None
        with self._lock:
            prompts = self._sessions.setdefault(session, [])
            self._sessions.move_to_end(session)
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
            most = _most_alike(prompts, prompt)
            if most and most.is_continued:
                prompts.remove(most.earlier)
            elif len(prompts) == self._max_lineages:
                del prompts[0]
            prompts.append(prompt)
            return most


def _most_alike(prompts: Sequence[RememberedPrompt], new: RememberedPrompt) -> Overlap | None:
    overlaps = [Overlap(one, shared_tokens(one.segments, new.segments)) for one in prompts]
    return max(reversed(overlaps), key=lambda overlap: overlap.tokens, default=None)


def shared_tokens(one: Sequence[Ids], other: Sequence[Ids]) -> int:
    """Return how many leading tokens two prompts share."""
    pairs = zip(one, other, strict=False)
    same = [len(a) for a, _ in takewhile(lambda pair: _are_equal(*pair), pairs)]
    a, b = _joined(one[len(same) :]), _joined(other[len(same) :])
    tokens = min(len(a), len(b))
    differences = np.flatnonzero(a[:tokens] != b[:tokens])
    return sum(same) + int(differences[0] if len(differences) else tokens)


def _are_equal(a: Ids, b: Ids) -> bool:
    return a is b or np.array_equal(a, b)


def _joined(segments: Sequence[Ids]) -> Ids:
    return np.concatenate([np.empty(0, np.uint32), *segments])

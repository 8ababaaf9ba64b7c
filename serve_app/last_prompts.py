"""The last prompts of each session: how much of a new one was there before."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NewType

import numpy as np

from policies.types import SessionId
from serve_app.segment_encoder import Ids

GENERATION_PROMPT_TOKENS = 16
"""The end of a prompt that asks for an answer; templates write it otherwise once it has one."""

PromptNumber = NewType("PromptNumber", int)
"""Counts prompts, from 0."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What a prompt shares with an earlier one of its session: `tokens` leading ones at least."""

    earlier: PromptNumber
    tokens: int


class LastPrompts:
    """The prompts of the last `max_sessions` sessions, `max_lineages` of each.

    A session can have several lineages at a time, such as its main thread and its subagents. Any
    thread may call it.
    """

    def __init__(self, max_sessions: int, max_lineages: int) -> None:
        self._max_sessions = max_sessions
        self._max_lineages = max_lineages
        self._sessions: OrderedDict[SessionId, dict[PromptNumber, Sequence[Ids]]] = OrderedDict()
        self._count = 0
        self._lock = Lock()

    def add(
        self, session: SessionId | None, segments: Sequence[Ids]
    ) -> tuple[PromptNumber, Overlap | None]:
        """Note a prompt; return its number, and what it shares with the session's most alike.

        It takes the place of the one that it continues, or of the session's oldest.
        """
        with self._lock:
            number = PromptNumber(self._count)
            self._count += 1
            if session is None:
                return number, None
            prompts = self._sessions.setdefault(session, {})
            self._sessions.move_to_end(session)
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
            most = _most_alike(prompts, segments)
            if most and most.tokens >= _tokens(prompts[most.earlier]) - GENERATION_PROMPT_TOKENS:
                del prompts[most.earlier]
            elif len(prompts) == self._max_lineages:
                del prompts[min(prompts)]
            prompts[number] = segments
            return number, most


def _most_alike(
    prompts: Mapping[PromptNumber, Sequence[Ids]], new: Sequence[Ids]
) -> Overlap | None:
    overlaps = [Overlap(one, shared_tokens(segments, new)) for one, segments in prompts.items()]
    most = max(overlaps, key=lambda overlap: (overlap.tokens, overlap.earlier), default=None)
    return most if most and most.tokens else None


def _tokens(segments: Sequence[Ids]) -> int:
    return sum(map(len, segments))


def shared_tokens(one: Sequence[Ids], other: Sequence[Ids]) -> int:
    """Return how many leading tokens two prompts share, or fewer if their segments differ."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a is not b:
            tokens = min(len(a), len(b))
            differences = np.flatnonzero(a[:tokens] != b[:tokens])
            if len(differences) or len(a) != len(b):
                return shared + int(differences[0] if len(differences) else tokens)
        shared += len(a)
    return shared

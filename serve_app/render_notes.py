"""What is noted of a prompt while it is rendered, beside its token ids."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from policies.turn import Turn
from serve_app.segment_encoder import Ids

NOT_TEXT = frozenset(("role", "content", "reasoning", "reasoning_content"))
"""Members of a message that are not added to its text; the content is its beginning."""


@dataclass(slots=True)
class RenderNotes:
    """Segments that were encoded, None if it was encoded whole; what the chat template was given.

    `conversation` is empty where there was no chat template.
    """

    segments: tuple[Ids, ...] | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    conversation: Sequence[Mapping[str, Any]] = ()

    def turn(self, prompt_tokens: int) -> Turn | None:
        """Return the prompt as hashes, or None where there was no chat template."""
        if not self.conversation:
            return None
        return Turn.of(self.tools, [_said(one) for one in self.conversation], prompt_tokens)


_notes: ContextVar[RenderNotes] = ContextVar("notes")


@contextmanager
def taking_notes() -> Iterator[RenderNotes]:
    """Note what is rendered in this context."""
    token = _notes.set(RenderNotes())
    try:
        yield _notes.get()
    finally:
        _notes.reset(token)


def notes() -> RenderNotes | None:
    """Return where to note what is rendered now; None if nobody wants to know."""
    return _notes.get(None)


def _said(message: Mapping[str, Any]) -> tuple[str, str, str | None]:
    """Return role, text and reasoning of a message; calls of tools and the like end the text."""
    more = {name: value for name, value in message.items() if value and name not in NOT_TEXT}
    text = _text(message.get("content")) + (json.dumps(more) if more else "")
    return message["role"], text, message.get("reasoning") or message.get("reasoning_content")


def _text(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.get("text") or json.dumps(part) for part in content)

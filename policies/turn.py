"""A turn's prompt in parts that can be compared, and say nothing of what they were."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType, Self

PartHash = NewType("PartHash", int)
"""Python's own keyed hash of a text: tells nothing of it, and is good within one process."""

SYSTEM_ROLES = ("system", "developer")

MAX_PARTS = 1000
"""Tools, messages and system lines kept of a turn, the first ones: half a MB at most."""


class Tool(NamedTuple):
    """A tool's definition as it was written, and whatever the order of its keys."""

    written: PartHash
    sorted: PartHash

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> Self:
        """Hash a definition, which is JSON."""
        texts = (json.dumps(definition, sort_keys=by_key) for by_key in (False, True))
        return cls(*map(_hash, texts))


class Message(NamedTuple):
    """One message: who says it, all that it says, and the reasoning before that."""

    role: str
    text: PartHash
    reasoning: PartHash | None

    @classmethod
    def of(cls, role: str, text: str, reasoning: str | None = None) -> Self:
        """Hash a message; `text` is all but its reasoning, calls of tools among it."""
        return cls(role, _hash(text), None if not reasoning else _hash(reasoning))


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn's prompt, as hashes. `system` is how many messages the system prompt has."""

    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    system: int
    system_lines: tuple[PartHash, ...]
    prompt_tokens: int

    @classmethod
    def of(
        cls,
        tools: Sequence[Mapping[str, Any]],
        messages: Sequence[tuple[str, str, str | None]],
        prompt_tokens: int,
    ) -> Self:
        """Hash a prompt: its tools' definitions, and (role, text, reasoning) of each message.

        Roles are those that the chat template is given: a tool's result is no user's message.
        """
        roles = [role in SYSTEM_ROLES for role, _, _ in messages]
        system = [*roles, False].index(False)
        lines = [line for _, text, _ in messages[:system] for line in text.split("\n")]
        return cls(
            tuple(map(Tool.of, tools[:MAX_PARTS])),
            tuple(Message.of(*message) for message in messages[:MAX_PARTS]),
            min(system, MAX_PARTS),
            tuple(map(_hash, lines[:MAX_PARTS])),
            prompt_tokens,
        )


def _hash(text: str) -> PartHash:
    return PartHash(hash(text))

"""Removes known volatile lines from system prompts, where they would break the prefix cache."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from policies.turn import SYSTEM_ROLES
from serve_app.session_id import NO_JSON

SYSTEM_FIELDS = frozenset(("system", "instructions"))
"""Fields of a request that are a system prompt: in Messages, in Responses."""

MESSAGE_FIELDS = frozenset(("messages", "input"))
"""Fields of a request that hold messages: in chat and Messages, in Responses."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """A request's body, and how many lines were removed by each pattern that removed any."""

    body: bytes
    removed: Mapping[str, int]


class VolatileLines:
    """The lines to remove: each pattern matches whole lines."""

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        self.patterns = patterns
        self._starts = {_literal_start(pattern.pattern).encode() for pattern in patterns}

    def may_be_in(self, json: bytes) -> bool:
        """Tell fast whether JSON text can have such a line."""
        return any(start in json for start in self._starts)

    def removed_from(self, body: bytes) -> Canonical:
        """Return the body without these lines in its system prompt.

        A text, content block, message or field that is empty without them goes too. A body that
        has none of them, or is not a JSON object, is returned as it is. Otherwise the JSON is
        equivalent in all else, with its order of keys and the spelling of its numbers.
        """
        if self.may_be_in(body):
            removal = _Removal(self)
            shortened = removal.request(Raw(body))
            if removal.lines:
                return Canonical(shortened, removal.lines)
        return Canonical(body, {})


def _literal_start(pattern: str) -> str:
    """Return what each match begins with, as far as that is plain to see.

    It has only characters that JSON encoders leave as they are, so it can be sought in raw JSON.
    """
    start = re.split("[^A-Za-z0-9_:;, -]", pattern, maxsplit=1)[0]
    if pattern.startswith(("?", "*", "{"), len(start)):
        start = start[:-1]
    return "" if "|" in pattern else start


class _Removal:
    """Goes through one request and counts the lines it removes.

    Each method takes a JSON value and returns it shortened, or None where nothing is left of it.
    What has not the expected shape is returned as it is: the engine answers that with its error.
    """

    def __init__(self, volatile: VolatileLines) -> None:
        self.lines: Counter[str] = Counter()
        self._volatile = volatile

    def request(self, body: Raw) -> bytes:
        fields = _read(_object, body) or {}
        kept = {name: self._field(name, value) for name, value in fields.items()}
        return msgspec.json.encode({name: v for name, v in kept.items() if v is not None})

    def _field(self, name: str, value: Raw) -> Raw | None:
        if not self._volatile.may_be_in(bytes(value)):
            return value
        if name in SYSTEM_FIELDS:
            return self._content(value)
        return self._each(self._message, value) if name in MESSAGE_FIELDS else value

    def _message(self, message: Raw) -> Raw | None:
        speaker = _read(_speaker, message)
        if speaker is None or speaker.role not in SYSTEM_ROLES:
            return message
        return _member("content", self._content, message)

    def _content(self, content: Raw) -> Raw | None:
        """Shorten a string, or a list of blocks."""
        text = _read(_string, content)
        return self._each(self._block, content) if text is None else self._text(text, content)

    def _block(self, block: Raw) -> Raw | None:
        return _member("text", self._content, block)

    def _each(self, shorten: "_Shorten", values: Raw) -> Raw | None:
        items = _read(_list, values)
        if not items:
            return values
        kept = [new for item in items if (new := shorten(item)) is not None]
        return _raw(kept) if kept else None

    def _text(self, text: str, content: Raw) -> Raw | None:
        lines = text.split("\n")
        kept = [line for line in lines if not self._is_volatile(line.removesuffix("\r"))]
        if len(kept) == len(lines):
            return content
        return _raw("\n".join(kept)) if any(kept) else None

    def _is_volatile(self, line: str) -> bool:
        for pattern in self._volatile.patterns:
            if pattern.fullmatch(line):
                self.lines[pattern.pattern] += 1
                return True
        return False


class _Speaker(msgspec.Struct):
    role: Any = None


_Shorten = Callable[[Raw], Raw | None]
_T = TypeVar("_T")

_list = msgspec.json.Decoder(list[Raw]).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_speaker = msgspec.json.Decoder(_Speaker).decode
_string = msgspec.json.Decoder(str).decode


def _read(decode: Callable[[Raw], _T], value: Raw) -> _T | None:
    """Return a JSON value decoded, or None where it has another shape."""
    try:
        return decode(value)
    except NO_JSON:
        return None


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _member(name: str, shorten: _Shorten, value: Raw) -> Raw | None:
    """Return a JSON object with one member shortened, or None where nothing is left of that."""
    members = _read(_object, value)
    if members is None or name not in members:
        return value
    member = shorten(members[name])
    return None if member is None else _raw(members | {name: member})

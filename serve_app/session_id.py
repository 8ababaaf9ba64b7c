"""Who is speaking: the session id that a coding agent sends, wherever it puts it."""

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import msgspec

from policies.types import SessionId
from serve_app.http_message import Headers

KNOWN_HEADERS = (
    "x-session-id",  # vLLM, Ray Serve
    "x-claude-code-session-id",  # Claude Code
    "session-id",  # Codex
    "session_id",  # Codex, older
    "x-session-affinity",  # OpenCode
)

ENGINE_HEADER = b"x-session-id"
"""Where vLLM looks for the session id."""


MAX_ID_CHARS = 256
"""Longer ids are hashed."""


class _Body(msgspec.Struct):
    """The few body fields that may carry an id; everything else is skipped unread."""

    session_id: Any = None
    prompt_cache_key: Any = None
    metadata: Any = None
    vllm_xargs: Any = None


class _UserId(msgspec.Struct):
    session_id: Any = None


NO_JSON = (msgspec.MsgspecError, RecursionError)
"""What the decoders raise for bytes that are not JSON, or nested beyond measure."""

_decode_body = msgspec.json.Decoder(_Body).decode
_decode_user_id = msgspec.json.Decoder(_UserId).decode
_AFTER_SESSION = re.compile(r"_session_(.+)$", re.DOTALL)


def find_session_id(
    headers: Headers, body: bytes, extra_headers: Iterable[str] = ()
) -> SessionId | None:
    """Return the id of the session that a request belongs to, or None where it names none.

    `extra_headers` are asked first, then the known headers, then the body. An id is taken as it
    is, or its hash where it is very long, so two ids are equal or different. A body that is not
    JSON has no id: the engine answers such a request with its own error.
    """
    values = dict(headers)
    for name in (*extra_headers, *KNOWN_HEADERS):
        if value := values.get(name.lower().encode()):
            return SessionId(short_id(value.decode("latin-1")))
    return _in_body(body)


def with_session_id(headers: Headers, session_id: SessionId) -> Headers:
    """Return the headers with the session id where the engine looks for it."""
    others = tuple(pair for pair in headers if pair[0] != ENGINE_HEADER)
    return (*others, (ENGINE_HEADER, session_id.encode()))


def _in_body(body: bytes) -> SessionId | None:
    try:
        fields = _decode_body(body)
    except NO_JSON:
        return None
    candidates = (
        fields.session_id,
        fields.prompt_cache_key,
        _in_user_id(_member(fields.metadata, "user_id")),
        _member(fields.vllm_xargs, "session_id"),
    )
    return next((SessionId(short_id(value)) for value in candidates if _is_id(value)), None)


def short_id(value: str) -> str:
    """Return an id that is short enough to be kept by the thousand: itself, or its hash."""
    if len(value) <= MAX_ID_CHARS:
        return value
    return blake2b(value.encode(errors="surrogatepass")).hexdigest()


def _in_user_id(user_id: Any) -> Any:
    """Claude Code's metadata.user_id: a JSON string with session_id, or text after _session_."""
    if not isinstance(user_id, str):
        return None
    try:
        return _decode_user_id(user_id).session_id
    except NO_JSON:
        match = _AFTER_SESSION.search(user_id)
        return match and match[1]


def _member(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and value != ""

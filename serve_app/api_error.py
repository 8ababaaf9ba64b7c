"""Errors that warmturn itself answers, in the form of the API that was called."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from serve_app.http_message import Headers, ResponseStart

MESSAGES = "/v1/messages"
"""Where the paths of Anthropic's API begin."""

ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Anthropic's error types by status; any other is an api_error."""


@dataclass(eq=False)
class ApiError(Exception):
    """An error for the client: its status, a message for people, and when to try again."""

    status: int
    message: str
    retry_after_s: int | None = None

    def headers(self) -> Headers:
        """Return the response's raw headers."""
        retry = (
            () if self.retry_after_s is None else ((b"retry-after", b"%d" % self.retry_after_s),)
        )
        return ((b"content-type", b"application/json"), *retry)

    def body(self, path: str) -> bytes:
        """Return the JSON body in the form that clients of `path` expect."""
        return json.dumps(self._form(path)).encode()

    def event(self, path: str) -> bytes:
        """Return a server-sent event that ends a stream of `path` which has already begun."""
        data = b"data: " + self.body(path) + b"\n\n"
        if path.startswith((MESSAGES, "/v1/responses")):
            return b"event: error\n" + data
        return data + b"data: [DONE]\n\n"

    def _form(self, path: str) -> dict[str, Any]:
        if path.startswith(MESSAGES):
            kind = ANTHROPIC_TYPES.get(self.status, "api_error")
            return {"type": "error", "error": {"type": kind, "message": self.message}}
        error = {
            "message": self.message,
            "type": HTTPStatus(self.status).phrase,
            "param": None,
            "code": self.status,
        }
        return {"error": error}


def in_form_of(path: str, start: ResponseStart, body: bytes) -> tuple[ResponseStart, bytes]:
    """Return a replica's error response in the form that clients of `path` expect.

    vLLM and its web framework have forms of their own for what fails before a request reaches its
    handler (JSON, types, keys, methods), and its own names for Anthropic's error types. An error
    of the OpenAI APIs in vLLM's usual form, and anything that is no error, stays as it is.
    """
    message = _message(body, is_openai=not path.startswith(MESSAGES))
    if message is None:
        return start, body
    corrected = ApiError(start.status, message).body(path)
    headers = tuple(pair for pair in start.headers if pair[0] != b"content-length")
    length = (b"content-length", b"%d" % len(corrected))
    return ResponseStart(start.status, (*headers, length)), corrected


def _message(body: bytes, *, is_openai: bool) -> str | None:
    """Return the message of an error that needs another form."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match content:
        case {"error": {"message": str(message)}}:
            return None if is_openai else message
        case {"error": str(message)} | {"detail": str(message)}:
            return message
    return None

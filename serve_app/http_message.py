"""What travels between gateway and replica for one HTTP exchange."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace
from typing import Self

Headers = tuple[tuple[bytes, bytes], ...]
"""Raw header pairs as ASGI gives them: names in lower case, order and repeats kept."""

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""Headers that speak of one connection only (RFC 9110, section 7.6.1)."""

FIRST_ERROR_STATUS = 400

REPLICA_HEADER = b"x-warmturn-replica"
"""Response header that names the replica which answered."""

SESSION_HEADER = b"x-warmturn-session"
"""Response header that names the session, percent-encoded beyond printable ASCII."""

CACHED_HEADER = b"x-warmturn-cached-tokens"
"""Response header: prompt tokens that were in a cache; on answers that come whole."""

EXPECTED_HEADER = b"x-warmturn-expected-cached-tokens"
"""Response header: what the router expected of that, where it was asked."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request; `path` is decoded, `query` is raw, as in an ASGI scope."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes

    def with_body(self, body: bytes) -> Self:
        """Return this request with another body, and the length of that in its header."""
        length = b"%d" % len(body)
        headers = tuple(
            (name, length if name == b"content-length" else value) for name, value in self.headers
        )
        return replace(self, headers=headers, body=body)


@dataclass(frozen=True, slots=True)
class ResponseStart:
    """Status and headers of a response; its body follows as byte strings."""

    status: int
    headers: Headers


def is_event_stream(headers: Headers) -> bool:
    """Tell whether a response is a stream of server-sent events."""
    return dict(headers).get(b"content-type", b"").startswith(b"text/event-stream")


ResponseStream = AsyncGenerator[ResponseStart | bytes, None]
"""A response on the wire: one ResponseStart, then the body in pieces."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response whose body is still arriving."""

    start: ResponseStart
    body: AsyncIterator[bytes]

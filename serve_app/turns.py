"""Makes a turn of a request: what the router decides by, and what is sent on."""

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from policies.types import RequestId, SessionId
from serve_app.agent_metrics import counter
from serve_app.client_name import client_name
from serve_app.http_message import HttpRequest
from serve_app.metrics import PREFIX_BREAK_TOKENS, PREFIX_BREAKS, PROMPTS_NOT_RENDERED
from serve_app.route_request import RouteRequest, SentBody
from serve_app.session_id import short_id

if TYPE_CHECKING:  # importing it imports vLLM
    from serve_app.prompts import ReadPrompt

TURN_PATHS = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"))
"""Paths whose POST requests have a prompt."""


def is_turn(method: str, path: str) -> bool:
    """Tell whether such a request has a prompt."""
    return method == "POST" and path in TURN_PATHS


class _Streamed(msgspec.Struct):
    stream: bool | None = None


def is_streamed_turn(request: HttpRequest) -> bool:
    """Tell whether a request has a prompt and asks for its answer as a stream."""
    if not is_turn(request.method, request.path):
        return False
    try:
        return msgspec.json.decode(request.body, type=_Streamed).stream is True
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False


class PromptsLike(Protocol):
    """What reads prompts; Prompts is the real one."""

    async def read(
        self, request: HttpRequest, session: SessionId | None, block_size: int | None
    ) -> "ReadPrompt":
        """Read a request's prompt, as Prompts.read does."""


class Turns:
    """Reads turns. Without `prompts` only their sessions are known, for routers that need no more.

    `block_size` returns the engines', or None while nobody knows it. With `keep_sent` a turn has
    what its client sent, to be recorded.
    """

    def __init__(
        self,
        prompts: PromptsLike | None,
        block_size: Callable[[], int | None],
        *,
        keep_sent: bool = False,
    ) -> None:
        self._prompts = prompts
        self._block_size = block_size
        self._keep_sent = keep_sent
        self._not_rendered = counter(PROMPTS_NOT_RENDERED)
        self._breaks = counter(PREFIX_BREAKS)
        self._break_tokens = counter(PREFIX_BREAK_TOKENS)

    async def read(
        self, request: HttpRequest, session: SessionId | None, sent: bytes
    ) -> tuple[HttpRequest, RouteRequest | None]:
        """Return the request to send on, and its turn; None if it has no prompt.

        `sent` is the body as it came from the client.
        """
        if not is_turn(request.method, request.path):
            return request, None
        headers = dict(request.headers)
        http_id = short_id(headers.get(b"x-request-id", b"").decode("latin-1"))
        client = client_name(request.headers)
        turn = RouteRequest(RequestId(uuid.uuid4().hex), http_id, session, client=client)
        if self._keep_sent:
            turn.sent = SentBody(request.path, sent)
        if self._prompts:
            block_size = self._block_size()
            read = await self._prompts.read(request, session, block_size)
            self._count(read)
            request = read.request
            turn = replace(
                turn,
                hashes=read.hashes,
                prompt_tokens=read.prompt_tokens,
                block_size=block_size or 1,
                prefix_break=read.prefix_break,
                not_rendered=read.not_rendered,
            )
        return request, turn

    def _count(self, read: "ReadPrompt") -> None:
        if read.not_rendered is not None:
            self._not_rendered.inc(1, {"reason": read.not_rendered})
        if broken := read.prefix_break:
            self._breaks.inc(1, {"kind": broken.kind})
            self._break_tokens.inc(broken.lost_tokens, {"kind": broken.kind})

"""The answer on its way to the client."""

import time

from starlette.types import Send

from serve_app.api_error import ApiError
from serve_app.http_message import HOP_BY_HOP, ResponseStart, is_event_stream


class Reply:
    """The answer to one request, in ASGI messages; `started` says whether it has begun.

    It is opened as the request arrives.
    """

    def __init__(self, path: str, send: Send) -> None:
        self.started = False
        self.opened_at_s = time.monotonic()
        self._path = path
        self._send = send
        self._is_event_stream = False

    async def start(self, start: ResponseStart) -> None:
        """Send status and headers, those of the connection left out."""
        self.started = True
        self._is_event_stream = is_event_stream(start.headers)
        headers = [pair for pair in start.headers if pair[0] not in HOP_BY_HOP]
        await self._send(
            {"type": "http.response.start", "status": start.status, "headers": headers}
        )

    async def body(self, piece: bytes) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """Say that the body is whole."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self, error: ApiError) -> None:
        """Tell the client; a begun answer that is no event stream can only break off."""
        if not self.started:
            await self.start(ResponseStart(error.status, error.headers()))
            await self.body(error.body(self._path))
        elif self._is_event_stream:
            await self.body(error.event(self._path))
        else:
            raise error
        await self.end()

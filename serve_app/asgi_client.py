"""Calls an ASGI application in this process, as an HTTP server would."""

import asyncio
from contextvars import Context

from starlette.types import ASGIApp, Message, Scope

from serve_app.http_message import HttpRequest, ResponseStart, ResponseStream

HANG_UP_GRACE_S = 5.0
"""How long an application may take to end after it heard that its client hung up."""


async def call(
    app: ASGIApp, request: HttpRequest, context: Context | None = None
) -> ResponseStream:
    """Yield the application's ResponseStart and then its body, piece by piece.

    The application runs in `context`, or in a copy of the caller's. Pieces that are ready together
    come joined: the bytes are the same, their number is smaller.
    Closing this generator, or cancelling the task that reads it, tells the application that the
    client hung up and waits until it has ended.

    Raises:
        Exception: whatever the application raised before it answered.
    """
    messages: asyncio.Queue[Message | None] = asyncio.Queue()
    hung_up = asyncio.Event()
    body_taken = False

    async def receive() -> Message:
        nonlocal body_taken
        if not body_taken:
            body_taken = True
            return {"type": "http.request", "body": request.body, "more_body": False}
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        messages.put_nowait(message)

    async def run() -> None:
        try:
            await app(_scope(request), receive, send)
        finally:
            messages.put_nowait(None)

    task = asyncio.create_task(run(), context=context)
    try:
        while (message := await messages.get()) is not None:
            if message["type"] == "http.response.start":
                yield ResponseStart(message["status"], tuple(map(tuple, message["headers"])))
            elif message["type"] == "http.response.body":
                yield message.get("body", b"") + _ready_pieces(messages)
        await task
    finally:
        # Hearing of it comes first: an application may run its work in tasks of its own, as vLLM
        # does, and to cancel only what waits for them would leave them running.
        hung_up.set()
        _, still_running = await asyncio.wait({task}, timeout=HANG_UP_GRACE_S)
        if still_running:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _ready_pieces(messages: asyncio.Queue[Message | None]) -> bytes:
    """Take the body pieces that wait in the queue; the end mark stays there."""
    pieces: list[bytes] = []
    while not messages.empty():
        message = messages.get_nowait()
        if message is None:
            messages.put_nowait(None)
            break
        pieces.append(message.get("body", b""))
    return b"".join(pieces)


def _scope(request: HttpRequest) -> Scope:
    return {
        "type": "http",
        # From 2.4 on Starlette would notice a hang-up only when it sends the next piece.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": request.method,
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": request.query,
        "root_path": "",
        "headers": list(request.headers),
        "client": None,
        "server": None,
    }

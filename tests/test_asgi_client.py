"""An ASGI application called in the same process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from serve_app import asgi_client
from serve_app.http_message import HttpRequest, ResponseStart

REQUEST = HttpRequest("POST", "/echo/a b", b"q=1&q=2", ((b"x-a", b"1"), (b"x-a", b"2")), b"body")


async def _all(app: ASGIApp, request: HttpRequest = REQUEST) -> tuple[ResponseStart, bytes]:
    start, *pieces = [message async for message in asgi_client.call(app, request)]
    assert isinstance(start, ResponseStart)
    return start, b"".join(piece for piece in pieces if isinstance(piece, bytes))


async def test_everything_arrives_on_both_sides() -> None:
    """Method, path, query, repeated headers and body reach the application; its answer returns."""

    async def echo(request: Request) -> Response:
        told = [request.method, request.path_params["name"], request.url.query]
        told += [*request.headers.getlist("x-a"), (await request.body()).decode()]
        return PlainTextResponse("|".join(told), 201, {"x-b": "3"})

    start, body = await _all(Starlette(routes=[Route("/echo/{name}", echo, methods=["POST"])]))
    assert body == b"POST|a b|q=1&q=2|1|2|body"
    assert start.status == 201
    assert (b"x-b", b"3") in start.headers


async def test_pieces_stream_as_they_come() -> None:
    """A piece is there before the application has made the next one."""
    go_on = asyncio.Event()

    async def pieces(_: Request) -> Response:
        async def content() -> AsyncIterator[bytes]:
            yield b"first"
            await go_on.wait()
            yield b"second"

        return StreamingResponse(content())

    app = Starlette(routes=[Route("/echo/{name}", pieces, methods=["POST"])])
    async with aclosing(asgi_client.call(app, REQUEST)) as messages:
        assert isinstance(await anext(messages), ResponseStart)
        assert await anext(messages) == b"first"
        go_on.set()
        assert b"".join([m async for m in messages if isinstance(m, bytes)]) == b"second"


async def test_pieces_that_wait_come_joined() -> None:
    """What the application sent while nobody read is one piece, byte for byte."""

    async def app(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"a", b"b", b"", b"c"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    assert [m async for m in asgi_client.call(app, REQUEST)][1:] == [b"abc"]


async def test_closing_is_a_hang_up() -> None:
    """Closing the stream tells the application that its client is gone, and waits for its end."""
    seen: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            seen.append((await receive())["type"])
        finally:
            await asyncio.sleep(0.01)
            seen.append("ended")

    async with aclosing(asgi_client.call(app, REQUEST)) as messages:
        await anext(messages)
        await asyncio.sleep(0)
    assert seen[-1] == "ended"


async def test_closing_ends_a_stream_that_has_nothing_to_send() -> None:
    """A response that waits for its next piece ends at once, without one."""
    ended = asyncio.Event()

    async def pieces(_: Request) -> Response:
        async def content() -> AsyncIterator[bytes]:
            try:
                yield b"first"
                await asyncio.sleep(60)
            finally:
                ended.set()

        return StreamingResponse(content())

    app = Starlette(routes=[Route("/echo/{name}", pieces, methods=["POST"])])
    async with asyncio.timeout(1), aclosing(asgi_client.call(app, REQUEST)) as messages:
        await anext(messages)
        await anext(messages)
    assert ended.is_set()


async def test_a_cancelled_reader_is_a_hang_up() -> None:
    """Cancelling the reading task reaches work that the application runs in its own tasks."""
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        await receive()
        tasks = {asyncio.ensure_future(work()), asyncio.ensure_future(receive())}
        _done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    reader = asyncio.create_task(_all(app))
    await asyncio.sleep(0.01)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert cancelled.is_set()


async def test_an_application_that_does_not_listen_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who does not end after the hang-up is ended."""
    monkeypatch.setattr(asgi_client, "HANG_UP_GRACE_S", 0.01)
    reader = asyncio.create_task(_all(lambda *_: asyncio.sleep(60)))
    await asyncio.sleep(0.01)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(reader, timeout=5)


async def test_an_exception_before_the_answer_is_raised() -> None:
    """The caller learns why an application did not answer."""

    async def app(*_: object) -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await _all(app)

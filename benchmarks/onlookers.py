"""Who watches a service: takes its spans, scrapes its metrics, and looks at the page of sessions.

They are a process of their own, as a collector, Prometheus and a browser are, so that what they
need themselves can be told from what it costs a service to be watched.
"""

import asyncio
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from random import uniform
from typing import Any

import grpc
import httpx

SCRAPE_S = 15.0
"""As in dashboards/prometheus.yml."""
READ_S = 2.0
"""How often the page asks for news, as in explorer/api.js."""
ALL_SESSIONS = "sessions?limit=10000"
NEW_SESSIONS = f"{ALL_SESSIONS}&within_s={READ_S + 1:.3f}"
"""What it asks for at first, and from then on, as in explorer/sessions.js."""

SPANS = "opentelemetry.proto.collector.trace.v1.TraceService"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is scraped, and where the page asks for news; the latter how often, in seconds."""

    targets: tuple[str, ...]
    console: str
    read_s: float = READ_S


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of watching a service once; `failure` says what did not come."""

    span_bytes: int
    answer_bytes: int
    failure: str | None


class Onlookers:
    """The process as seen from the one that started it. `endpoint` takes spans over gRPC."""

    def __init__(self, pid: int, pipe: Any) -> None:
        self.pid = pid
        self._pipe = pipe
        self.endpoint: str = pipe.recv()

    @contextmanager
    def watch(self, watched: Watched) -> Iterator[list[Seen]]:
        """Have them look as long as this is open; then there is what they saw.

        Raises:
            RuntimeError: something that they asked for did not come.
        """
        seen: list[Seen] = []
        self._pipe.send(watched)
        self._pipe.recv()  # they look now
        try:
            yield seen
        finally:
            self._pipe.send(None)
            seen.append(self._pipe.recv())
        if seen[0].failure:
            raise RuntimeError(seen[0].failure)


@contextmanager
def onlookers() -> Iterator[Onlookers]:
    """Start them, and end them on the way out."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run, args=(theirs,), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield Onlookers(process.pid, ours)
    finally:
        process.terminate()
        process.join()


class _SpanReceiver:
    """Counts what exporters send, unread: to read it is the work of whoever keeps it."""

    def __init__(self) -> None:
        self.bytes = 0
        self._server = grpc.server(ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(self._export)
        services = [grpc.method_handlers_generic_handler(SPANS, {"Export": handler})]
        self._server.add_generic_rpc_handlers(services)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _export(self, request: bytes, _: Any) -> bytes:
        self.bytes += len(request)
        return b""  # an answer of which every field has its default


def _run(pipe: Any) -> None:
    receiver = _SpanReceiver()
    pipe.send(receiver.endpoint)
    asyncio.run(_obey(pipe, receiver))


async def _obey(pipe: Any, receiver: _SpanReceiver) -> None:
    """Watch what is told, until told None, again and again; the page stays open meanwhile."""
    page = chain([ALL_SESSIONS], repeat(NEW_SESSIONS))
    async with httpx.AsyncClient(timeout=120) as http:
        while True:
            watched: Watched = await asyncio.to_thread(pipe.recv)
            span_bytes, came = receiver.bytes, Counter[str]()
            asked = ([f"{watched.console}/{path}"] for path in page)
            tasks = [
                asyncio.create_task(_read(http, repeat(watched.targets), SCRAPE_S, came)),
                asyncio.create_task(_read(http, asked, watched.read_s, came)),
            ]
            pipe.send(None)
            await asyncio.to_thread(pipe.recv)
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            failure = next((repr(end) for end in ends if isinstance(end, Exception)), None)
            pipe.send(Seen(receiver.bytes - span_bytes, came.total(), failure))


async def _read(
    http: httpx.AsyncClient, rounds: Iterable[Sequence[str]], period_s: float, came: Counter[str]
) -> None:
    """Ask for a round of addresses in each period, and count the bytes that come."""
    await asyncio.sleep(uniform(0, period_s))  # noqa: S311  # it began at any time
    for addresses in rounds:
        for address in addresses:
            answer = await http.get(address)
            came[address] += len(answer.raise_for_status().content)
        await asyncio.sleep(period_s)

"""What the process that watches a service asks for, and what it tells of it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from benchmarks.onlookers import ALL_SESSIONS, NEW_SESSIONS, Onlookers, Watched, onlookers
from serve_app import tracing
from tests.patience import wait_until

PATIENCE_S = 30.0
READ_S = 0.2


def _page(url: str) -> Watched:
    """Return a page that is in a hurry."""
    return Watched((), url, READ_S)


@dataclass(slots=True)
class FakeService:
    """Answers `status` to everything, and remembers the paths."""

    status: int = 200
    paths: list[str] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Yield its URL."""
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.paths.append(self.path.removeprefix("/"))
                self.send_response(service.status)
                self.send_header("content-length", "4")
                self.end_headers()
                self.wfile.write(b"told")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()


def test_the_page_asks_for_all_and_then_for_news() -> None:
    """So it does in a browser; the bytes of its answers and of spans are counted."""
    service = FakeService()
    with onlookers() as crowd, service.serve() as url:
        with crowd.watch(_page(url)) as seen:
            with tracing.span(tracing.tracer(crowd.endpoint), "turn"):
                pass
            tracing.close(tracing.provider(crowd.endpoint), PATIENCE_S)
            wait_until(lambda: len(service.paths) >= 3, PATIENCE_S)
        first, *later = service.paths
        assert first == ALL_SESSIONS
        assert set(later) == {NEW_SESSIONS}
        told = len("told")  # the last one may not have been heard out
        assert seen[0].answer_bytes in (told * len(later), told * len(service.paths))
        assert seen[0].span_bytes > len("turn")


def test_nothing_is_asked_any_more_once_they_stop() -> None:
    """What they saw is told again from nothing the next time."""
    service = FakeService()
    with onlookers() as crowd, service.serve() as url:
        with crowd.watch(_page(url)):
            wait_until(lambda: bool(service.paths), PATIENCE_S)
        asked = len(service.paths)
        time.sleep(READ_S)
        assert len(service.paths) == asked
        with crowd.watch(Watched((), url, read_s=3600)) as seen:
            pass
        assert (seen[0].answer_bytes, seen[0].span_bytes) == (0, 0)


def test_an_answer_that_does_not_come_ends_the_measurement() -> None:
    """A service that fails must not look cheap."""
    service = FakeService(status=503)
    with onlookers() as crowd, service.serve() as url, pytest.raises(RuntimeError, match="503"):
        _watch_in_vain(crowd, url, service)


def _watch_in_vain(crowd: Onlookers, url: str, service: FakeService) -> None:
    with crowd.watch(_page(url)):
        wait_until(lambda: bool(service.paths), PATIENCE_S)
        time.sleep(READ_S)

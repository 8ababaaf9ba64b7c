"""A replica's reports: in order, complete, and made up for when they were lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.distributed.kv_events import BlockStored, KVEventBatch, ZmqEventPublisher

from policies.kv_events import Stored
from policies.types import ReplicaId, RequestId, SessionId
from serve_app import kv_event_stream, reporter
from serve_app.engine_load import EngineLoad
from serve_app.engine_turn import EngineTurn
from serve_app.kv_event_stream import private_endpoints
from serve_app.replica_report import Node, ReplicaReport
from serve_app.reporter import Reporter
from serve_app.route_request import Placement, RouteRequest
from serve_app.router_client import RouterSilent
from tests.policies.makers import BLOCK_SIZE


class FakeRouter:
    """Answers each report as the test says: in sync, out of sync, or not at all."""

    def __init__(self) -> None:
        self.reports: list[ReplicaReport] = []
        self.answers: Callable[[int], bool | None] = lambda _: True

    async def call(self, method: str, *args: Any, timeout_s: float) -> bool:
        assert (method, timeout_s) == ("report", reporter.TIMEOUT_S)
        (report,) = args
        self.reports.append(report)
        answer = self.answers(len(self.reports))
        if answer is None:
            raise RouterSilent("as the test says")
        return answer


def _idle_load() -> EngineLoad:
    """Return what an idle engine's statistics say."""
    cache = SimpleNamespace(block_size=BLOCK_SIZE, num_gpu_blocks=100)
    scheduler = SimpleNamespace(max_num_seqs=16)
    config = SimpleNamespace(cache_config=cache, scheduler_config=scheduler)
    return EngineLoad(ReplicaId("r1")).attach(config)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report often, so that no test waits for long."""
    monkeypatch.setattr(reporter, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(reporter, "RETRY_S", 0.05)
    monkeypatch.setattr(reporter, "PAUSE_S", 0.01)
    monkeypatch.setattr(kv_event_stream, "CHECK_S", 0.1)


@pytest.fixture
def router() -> FakeRouter:
    return FakeRouter()


@pytest.fixture
def publisher() -> Iterator[ZmqEventPublisher]:
    """Publishes as an engine does."""
    with private_endpoints() as endpoints:
        made = ZmqEventPublisher(0, endpoints.events, endpoints.replay)
        made.endpoints = endpoints  # type: ignore[attr-defined]
        yield made
        made.shutdown()


@pytest.fixture
async def told(router: FakeRouter, publisher: ZmqEventPublisher) -> AsyncIterator[Reporter]:
    """A reporter at work."""
    made = Reporter(router, Node("n1", is_head=True), _idle_load(), "model")
    tasks = [
        asyncio.create_task(made.run()),
        asyncio.create_task(made.follow(publisher.endpoints)),  # type: ignore[attr-defined]
    ]
    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _publish(publisher: ZmqEventPublisher, block: int) -> None:
    """Publish that a prompt's first block was stored."""
    tokens = list(range(block * BLOCK_SIZE, (block + 1) * BLOCK_SIZE))
    publisher.publish(KVEventBatch(0.0, [_stored(block, tokens)]))


def _stored(block: int, tokens: list[int]) -> BlockStored:
    return BlockStored([block], None, tokens, BLOCK_SIZE, None, "GPU", None)


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_first_report_says_that_nothing_is_held(
    told: Reporter, router: FakeRouter
) -> None:
    """An engine starts empty, so the router is in step from the beginning."""
    assert told
    await _until(lambda: router.reports)
    first = router.reports[0]
    assert first.batch is not None
    assert (first.batch.sequence, list(first.batch.events)) == (0, [])
    assert first.batch.generation == first.state.generation
    assert first.snapshot is None


async def test_events_come_in_numbered_batches(
    told: Reporter, router: FakeRouter, publisher: ZmqEventPublisher
) -> None:
    """Every block once, and no number twice or left out."""
    assert told
    for block in range(20):
        _publish(publisher, block)
        await asyncio.sleep(0.005)
    await _until(lambda: len(_names(router)) == 20)
    batches = [report.batch for report in router.reports if report.batch]
    assert [batch.sequence for batch in batches] == list(range(len(batches)))
    assert _names(router) == list(range(20))


def _names(router: FakeRouter) -> list[int]:
    batches = [report.batch for report in router.reports if report.batch]
    stored = [event for batch in batches for event in batch.events if isinstance(event, Stored)]
    return [name for event in stored for name in event.engine_hashes]


async def test_a_router_that_lost_touch_gets_all_that_is_held(
    told: Reporter, router: FakeRouter, publisher: ZmqEventPublisher
) -> None:
    """With the sessions that were served; the next batch follows on."""
    _publish(publisher, 1)
    await _until(lambda: _names(router) == [1])
    router.answers = lambda _: False
    _publish(publisher, 2)
    turn = RouteRequest(RequestId("q1"), "", None, np.array([5], np.uint64), 6, BLOCK_SIZE)
    turn.placement = Placement(ReplicaId("r1"), SessionId("s1"), 0)
    told.began(turn)
    await _until(lambda: router.reports[-1].snapshot)
    router.answers = lambda _: True
    await _until(lambda: router.reports[-1].snapshot is None)
    snapshots = [report for report in router.reports if report.snapshot]
    last = snapshots[-1]
    assert last.snapshot is not None
    assert {name for one in last.snapshot.stored for name in one.engine_hashes} == {1, 2}
    assert [one.session for one in last.last_turns] == ["s1"]
    _publish(publisher, 3)
    await _until(lambda: 3 in _names(router))
    follower = next(report.batch for report in router.reports[::-1] if report.batch)
    assert follower.sequence == last.snapshot.sequence + 1


async def test_after_a_silence_a_number_tells_whether_something_was_missed(
    told: Reporter, router: FakeRouter, publisher: ZmqEventPublisher
) -> None:
    """No snapshot is made for a router that does not answer, and none that nobody needs."""
    router.answers = lambda _: None
    _publish(publisher, 1)
    await _until(lambda: told and _names(router) == [1])
    await _until(lambda: len(router.reports) > 5)
    assert all(report.snapshot is None for report in router.reports)
    sequences = [report.batch.sequence for report in router.reports if report.batch]
    assert sequences == list(range(len(sequences)))
    router.answers = lambda _: True
    await _until(lambda: router.reports[-1].batch is None)
    assert all(report.snapshot is None for report in router.reports)


async def test_what_runs_is_in_every_report(told: Reporter, router: FakeRouter) -> None:
    """From a turn's begin to its end."""
    turn = RouteRequest(RequestId("q1"), "", None)
    told.began(turn)
    await _until(lambda: router.reports and router.reports[-1].turns == {"q1"})
    told.ended(EngineTurn(turn.request))
    await _until(lambda: not router.reports[-1].turns)


async def test_no_end_is_lost_with_a_report(told: Reporter, router: FakeRouter) -> None:
    """While the router is silent they are kept: nobody else would release their load."""
    router.answers = lambda _: None
    turn = EngineTurn(RequestId("q1"))
    told.first_token(turn.request)
    told.ended(turn)
    await _until(lambda: any(report.ends for report in router.reports))
    silent = len(router.reports)
    router.answers = lambda _: True
    await _until(lambda: len(router.reports) > silent + 2)
    heard = router.reports[silent:]
    assert [end.request for report in heard for end in report.ends] == ["q1"]
    assert [first for report in heard for first in report.first_tokens] == ["q1"]


async def test_an_idle_replica_is_heard_of(told: Reporter, router: FakeRouter) -> None:
    """It says that it lives, and nothing else."""
    assert told
    await _until(lambda: len(router.reports) > 3)
    assert all(report.batch is None and not report.ends for report in router.reports[1:])

"""An engine's events arrive in order and once, or it's said that some are lost."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import zmq
from vllm.distributed.kv_events import BlockRemoved, KVEventBatch, ZmqEventPublisher

from serve_app import kv_event_stream
from serve_app.kv_event import KvEvent
from serve_app.kv_event_stream import Endpoints, Lost, follow, private_endpoints

Start = Callable[..., ZmqEventPublisher]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often, so that no test waits for long."""
    monkeypatch.setattr(kv_event_stream, "CHECK_S", 0.1)


@pytest.fixture
def endpoints() -> Iterator[Endpoints]:
    """Sockets of a test's own."""
    with private_endpoints() as made:
        yield made


@pytest.fixture
def start(endpoints: Endpoints) -> Iterator[Start]:
    """Starts vLLM's own publisher, as the engine does."""
    started: list[ZmqEventPublisher] = []

    def start(**changes: int) -> ZmqEventPublisher:
        fields = {"endpoint": endpoints.events, "replay_endpoint": endpoints.replay}
        started.append(ZmqEventPublisher(0, **fields | changes))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for publisher in started:
        publisher.shutdown()


def publish(publisher: ZmqEventPublisher, *numbers: int) -> None:
    """Publish one batch for each number."""
    for number in numbers:
        publisher.publish(KVEventBatch(0.0, [BlockRemoved([number], "GPU")]))


def number_of(batch: list[KvEvent] | Lost) -> int | Lost:
    """Return the number that a batch was published for."""
    if isinstance(batch, Lost):
        return batch
    (event,) = batch
    assert isinstance(event, BlockRemoved)
    (number,) = event.block_hashes
    assert isinstance(number, int)
    return number


async def take(
    stream: AsyncGenerator[list[KvEvent] | Lost, None], count: int, within_s: float = 20
) -> list[int | Lost]:
    """Return the next batches' numbers."""
    async with asyncio.timeout(within_s):
        return [number_of(await anext(stream)) for _ in range(count)]


def drop(publisher: ZmqEventPublisher, *numbers: int) -> None:
    """Publish batches that no subscriber receives, as if its queue were full."""
    publisher._topic_bytes = b"nobody"
    socket = publisher._pub
    assert socket is not None
    silent: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUB)
    publisher._pub = silent
    publish(publisher, *numbers)
    publisher._event_queue.join()
    publisher._pub, publisher._topic_bytes = socket, b""
    silent.close(linger=0)


async def test_a_follower_that_was_there_first_gets_everything_in_order(
    endpoints: Endpoints, start: Start
) -> None:
    """It connects before the publisher exists, and keeps up with it."""
    async with aclosing(follow(endpoints)) as stream:
        first = asyncio.create_task(take(stream, 3))
        await asyncio.sleep(0.1)
        publisher = start()
        publish(publisher, 0, 1, 2)
        assert await first == [0, 1, 2]
        publish(publisher, *range(3, 500))
        assert await take(stream, 497) == list(range(3, 500))


async def test_a_late_follower_gets_the_beginning_even_if_nothing_more_happens(
    endpoints: Endpoints, start: Start
) -> None:
    """What it was too late for is asked for once it's silent."""
    publisher = start()
    publish(publisher, 0, 1, 2)
    publisher._event_queue.join()
    async with aclosing(follow(endpoints)) as stream:
        assert await take(stream, 3) == [0, 1, 2]


async def test_a_long_beginning_arrives_whole(endpoints: Endpoints, start: Start) -> None:
    """An answer that is too long for the publisher's queue is completed by asking again."""
    publisher = start()
    publish(publisher, *range(9000))
    publisher._event_queue.join()
    async with aclosing(follow(endpoints)) as stream:
        assert await take(stream, 9000) == list(range(9000))


async def test_a_gap_is_filled(endpoints: Endpoints, start: Start) -> None:
    """Dropped batches come from the publisher's buffer, before what came after them."""
    publisher = start()
    async with aclosing(follow(endpoints)) as stream:
        publish(publisher, 0)
        assert await take(stream, 1) == [0]
        drop(publisher, 1, 2)
        publish(publisher, 3, 4)
        assert await take(stream, 4) == [1, 2, 3, 4]


async def test_the_last_batches_are_missed_even_if_nothing_more_happens(
    endpoints: Endpoints, start: Start
) -> None:
    """A dropped batch is found without a later one that shows the gap."""
    publisher = start()
    async with aclosing(follow(endpoints)) as stream:
        publish(publisher, 0)
        assert await take(stream, 1) == [0]
        drop(publisher, 1)
        assert await take(stream, 1) == [1]


async def test_a_gap_that_cannot_be_filled_is_said(endpoints: Endpoints, start: Start) -> None:
    """What left the publisher's buffer is lost; the stream goes on behind it."""
    publisher = start(buffer_steps=3)
    async with aclosing(follow(endpoints)) as stream:
        publish(publisher, 0)
        assert await take(stream, 1) == [0]
        drop(publisher, 1, 2, 3, 4)
        publish(publisher, 5)
        assert await take(stream, 4) == [Lost(2), 3, 4, 5]
        publish(publisher, 6)
        assert await take(stream, 1) == [6]


async def test_the_loop_stays_free_and_cancelling_leaves_nothing(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks run while it waits for an answer; cancelled then, it closes its sockets."""
    monkeypatch.setattr(kv_event_stream, "ANSWER_S", 60)

    async def consume() -> None:
        async with aclosing(follow(endpoints)) as stream:
            async for _ in stream:
                pass

    gc.collect()
    before = open_files()
    task = asyncio.create_task(consume())
    start_s = asyncio.get_running_loop().time()
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert asyncio.get_running_loop().time() - start_s < 30
    assert open_files() > before
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert open_files() <= before  # threads of other tests may close theirs


def open_files() -> int:
    """Return how many files this process has open, sockets and pipes and all."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_sockets_are_private_and_go() -> None:
    """Nobody else can enter their directory, which is gone in the end; the engine gets both."""
    with private_endpoints() as endpoints:
        directory = Path(endpoints.events.removeprefix("ipc://")).parent
        assert directory.stat().st_mode & 0o777 == 0o700
        config = endpoints.config()
        assert (config.endpoint, config.replay_endpoint) == (endpoints.events, endpoints.replay)
    assert not directory.exists()

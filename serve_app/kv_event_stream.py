"""The KV events that an engine's process publishes, in order and each exactly once.

vLLM publishes numbered batches on one ZMQ socket, which drops what a subscriber was too late or too
slow for, and repeats the last `buffer_steps` of them on another, when asked.

Source of the protocol: vLLM 0.32, distributed/kv_events.py (ZmqEventPublisher).
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import zmq
import zmq.asyncio
from vllm.config import KVEventsConfig
from vllm.distributed.kv_events import KVEventBatch, ZmqEventPublisher

from serve_app.kv_event import KvEvent

CHECK_S = 1.0
"""Silence after which the publisher is asked whether the last batches were missed."""

ANSWER_S = 1.0
"""Silence after which no more of an answer is awaited."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where one engine publishes its events, and where it repeats them."""

    events: str
    replay: str

    def config(self) -> KVEventsConfig:
        """Return what makes an engine publish there."""
        return KVEventsConfig(
            enable_kv_cache_events=True,
            publisher="zmq",
            endpoint=self.events,
            replay_endpoint=self.replay,
        )


@dataclass(frozen=True, slots=True)
class Lost:
    """This many batches are gone for good: what was known of the cache is void from here on."""

    batches: int


@contextmanager
def private_endpoints() -> Iterator[Endpoints]:
    """Give sockets in a directory that no other user can enter, removed at the end."""
    with TemporaryDirectory(prefix="warmturn-kv-") as name:
        directory = Path(name)
        yield Endpoints(f"ipc://{directory / 'events'}", f"ipc://{directory / 'replay'}")


async def follow(endpoints: Endpoints) -> AsyncGenerator[list[KvEvent] | Lost, None]:
    """Yield each batch of one publisher, from its first one on; close it with `aclosing`.

    The publisher need not be there yet. Nothing ends the stream but its consumer: an engine that
    died is silent.
    """
    decoder = msgspec.msgpack.Decoder(KVEventBatch)
    expected = 0
    behind = False
    context = zmq.asyncio.Context()
    try:
        live = context.socket(zmq.SUB)
        live.subscribe(b"")
        live.connect(endpoints.events)
        while True:
            if not behind and await live.poll(CHECK_S * 1000):
                _, number, payload = await live.recv_multipart()
                sequence = int.from_bytes(number, "big")
                if sequence < expected:
                    continue
                if sequence == expected:
                    expected += 1
                    yield decoder.decode(payload).events
                    continue
            # A batch leaves the publisher before it answers, so that the answer has the one which
            # showed the gap, too.
            behind = False
            first = True
            async with aclosing(_replay(context, endpoints.replay, expected)) as missed:
                async for sequence, payload in missed:
                    if sequence > expected:
                        if not first:  # the publisher drops what its answer's queue can't take
                            behind = True
                            break
                        yield Lost(sequence - expected)
                    first = False
                    expected = sequence + 1
                    yield decoder.decode(payload).events
    finally:
        context.destroy(linger=0)


async def _replay(
    context: zmq.asyncio.Context, endpoint: str, start: int
) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield what the publisher still has from batch `start` on; parts but the first may miss."""
    # A new socket for each question, so that a late answer to an earlier one can't be mistaken.
    with context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.rcvhwm = 0
        socket.connect(endpoint)
        await socket.send_multipart((b"", start.to_bytes(8, "big")))
        while await socket.poll(ANSWER_S * 1000):
            _, _, number, payload = await socket.recv_multipart()
            if number == ZmqEventPublisher.END_SEQ:
                return
            yield int.from_bytes(number, "big"), payload

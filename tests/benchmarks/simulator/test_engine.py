"""What an engine does with requests, and how long it takes."""

from collections.abc import Sequence
from math import inf

import pytest

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.progress import Admitted, Finished, FirstToken, Hit, Progress
from benchmarks.simulator.turn import LiveSession, Turn
from benchmarks.trace_session import TraceRequest, TraceSession
from policies.kv_events import EngineHash, Removed, Stored
from policies.types import ReplicaId, Tier

# A step takes 0.1 s, and 0.001 s for each token that it prefills; 100 at most.
HARDWARE = Hardware(
    gpu_tokens=0,
    host_tokens=0,
    max_context_tokens=10_000,
    max_requests=8,
    step_tokens=100,
    base_step_s=0.1,
    decode_s=0.0,
    context_tokens_per_s=1e12,
    prefill_tokens_per_s=1000.0,
    restore_tokens_per_s=10_000.0,
)


def make_engine(blocks: int = 1000, host_blocks: int = 0) -> Engine:
    return Engine(ReplicaId("r"), HARDWARE, KvMemory(BlockPool(blocks), HostCache(host_blocks)))


def make_turns(*lengths: tuple[int, int], name: str = "s") -> list[Turn]:
    """Return a session's turns, with prompt and output tokens; blocks are of 10 tokens."""
    steps = tuple(
        (TraceRequest((range(tokens // 10),), tokens, output, 0.0),) for tokens, output in lengths
    )
    session = LiveSession(TraceSession(name, name, 10, 0, 0, steps), 1)
    return [session.next_step(0.0)[0][1] for _ in lengths]


def finish(engine: Engine) -> list[tuple[float, Progress]]:
    """Let an engine do all it has to do; return what happened when."""
    seen = []
    while (now_s := engine.next_at_s) < inf:
        seen += [(now_s, one) for one in engine.advance(now_s)]
    return seen


def times(seen: Sequence[tuple[float, Progress]], kind: type[Progress]) -> list[float]:
    return [round(at_s, 6) for at_s, one in seen if isinstance(one, kind)]


def test_a_prefill_takes_its_steps_and_an_answer_one_step_a_token() -> None:
    """200 tokens are two steps of 0.2 s; the other nine tokens of the answer take 0.1 s each."""
    engine = make_engine()
    [turn] = make_turns((200, 10))
    assert engine.submit(turn, 1.0) == [Admitted(turn, Hit(0, 0), 0.0, 0.0)]
    seen = finish(engine)
    assert times(seen, FirstToken) == [1.4]
    assert times(seen, Finished) == [2.3]


def test_a_prefill_slows_what_decodes_beside_it() -> None:
    """While a prefill runs, others get one token in each of its longer steps."""
    engine = make_engine()
    first, second = make_turns((100, 11), name="a") + make_turns((1000, 1), name="b")
    engine.submit(first, 0.0)
    engine.advance(0.2)
    engine.submit(second, 0.2)
    seen = finish(engine)
    # A chunk has 99 tokens, as one is the other request's: ten steps of 0.199 s and a bit.
    assert [one for _, one in seen] == [Finished(first), FirstToken(second), Finished(second)]
    assert seen[0][0] == pytest.approx(0.2 + 10 * 0.199)


def test_the_next_turn_finds_its_beginning_cached() -> None:
    """All full blocks of the last prompt are reused, but never the last token."""
    engine = make_engine()
    first, second, third = make_turns((200, 1), (300, 1), (300, 1))
    engine.submit(first, 0.0)
    finish(engine)
    assert engine.submit(second, 10.0) == [Admitted(second, Hit(20, 0), 0.0, 0.0)]
    finish(engine)
    assert engine.submit(third, 20.0) == [Admitted(third, Hit(29, 0), 0.0, 0.0)]


def test_what_does_not_fit_waits_for_memory_and_so_do_those_behind_it() -> None:
    """First come, first served: a small request does not overtake a large one."""
    engine = make_engine(blocks=30)
    running, large, small = (
        make_turns((190, 10), name="a")[0],
        make_turns((190, 1), name="b")[0],
        make_turns((20, 1), name="c")[0],
    )
    engine.submit(running, 0.0)
    assert engine.submit(large, 0.1) + engine.submit(small, 0.1) == []
    assert engine.state.waiting == 2
    seen = finish(engine)
    ended = next(at_s for at_s, one in seen if one == Finished(running))
    admitted = [(at_s, one) for at_s, one in seen if isinstance(one, Admitted)]
    assert [one.turn for _, one in admitted] == [large, small]
    at_s, first = admitted[0]
    assert at_s == ended
    assert first.prefills_s == pytest.approx(0.28)  # what was left of the running one's prefill
    assert first.memory_s == pytest.approx(ended - 0.38)


def test_kv_comes_back_from_cpu_memory() -> None:
    """What GPU memory lost is copied, faster than it would be computed."""
    engine = make_engine(blocks=30, host_blocks=100)
    first, again = make_turns((200, 1), (200, 1), name="a")
    [other] = make_turns((250, 1), name="b")
    for turn in (first, other):
        engine.submit(turn, engine.next_at_s if engine.next_at_s < inf else 10.0)
        finish(engine)
    engine.memory.events.take()
    [admitted] = engine.submit(again, 20.0)
    assert isinstance(admitted, Admitted)
    assert admitted.hit.gpu_blocks < 10
    assert admitted.hit.gpu_blocks + admitted.hit.host_blocks == 19
    seen = finish(engine)
    restored_s = admitted.hit.host_blocks * 10 / 10_000
    assert times(seen, FirstToken) == [round(20.0 + restored_s + 0.11, 6)]


def test_events_tell_what_is_stored_and_removed() -> None:
    """Their contents chain to the hashes that requests carry."""
    engine = make_engine(blocks=30)
    first, second = make_turns((200, 1), (250, 1), name="a")
    [other] = make_turns((150, 1), name="b")
    engine.submit(first, 0.0)
    finish(engine)
    engine.submit(second, 10.0)
    finish(engine)
    stored = [one for one in engine.memory.events.take() if isinstance(one, Stored)]
    assert [one.parent for one in stored] == [None, EngineHash(first.request.hashes[-1])]
    assert [len(one.contents) for one in stored] == [20, 5]
    engine.submit(other, 20.0)
    [removed] = engine.memory.events.take()
    assert isinstance(removed, Removed)
    assert removed.tier is Tier.GPU
    assert EngineHash(second.request.hashes[-1]) in removed.engine_hashes
    assert EngineHash(second.request.hashes[0]) not in removed.engine_hashes


def test_rates_are_measured() -> None:
    """Half of a full chunk's time goes into prefilling, so the rate is half the hardware's."""
    engine = make_engine()
    for number in range(200):
        [turn] = make_turns((100, 1), name=str(number))
        engine.submit(turn, number * 10.0)
        finish(engine)
    assert engine.state.prefill_tokens_per_s == pytest.approx(500, rel=0.01)
    assert engine.state.hold_s == pytest.approx(0.2, rel=0.01)

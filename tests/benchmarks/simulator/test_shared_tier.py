"""Stories of replicas that share a tier of KV."""

from math import inf

import pytest

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.engine import Engine
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.presets import PRESETS
from benchmarks.simulator.progress import Admitted, FirstToken, Hit
from benchmarks.simulator.shared_tier import SharedTier, SharedTierSize
from policies.kv_events import EngineHash, Event, EventBatch, Removed, Stored
from policies.match import Match
from policies.prefix_index import PrefixIndex
from policies.types import BlockHash, ReplicaId, Tier
from tests.benchmarks.simulator.test_engine import HARDWARE, finish, make_turns, times


def make_tier(
    *, link_tokens_per_s: float = 1000.0, total: float = inf, backend_tokens_per_s: float = inf
) -> SharedTier:
    """Return a tier of so many blocks of 10 tokens."""
    return SharedTier(SharedTierSize(link_tokens_per_s, total * 10, backend_tokens_per_s), 10)


def make_replica(
    name: str, tier: SharedTier, *, blocks: int = 1000, host_blocks: int = 1000
) -> Engine:
    memory = KvMemory(BlockPool(blocks), HostCache(host_blocks))
    return Engine(ReplicaId(name), HARDWARE, memory, tier)


def blocks(*numbers: int) -> list[BlockHash]:
    return [BlockHash(number) for number in numbers]


def shared_events(engine: Engine) -> list[Event]:
    return [one for one in engine.memory.events.take() if one.tier is Tier.SHARED]


def test_what_one_replica_computed_another_one_fetches() -> None:
    """Once it was written through; it's read into CPU memory, and from there into the GPU's."""
    tier = make_tier()
    first, second = make_replica("a", tier), make_replica("b", tier)
    begin, again = make_turns((200, 1), (300, 1))
    first.submit(begin, 0.0)
    finish(first)
    assert first.next_at_s == inf
    assert second.submit(again, 10.0) == []
    assert (second.state.waiting, second.state.free_blocks) == (1, 1000)
    seen = finish(second)
    # 200 tokens take 0.2 s over the link and 0.02 s from CPU memory; then 100 are computed.
    admitted_at_s, admitted = seen[0]
    assert isinstance(admitted, Admitted)
    assert admitted.hit == Hit(0, 0, 20)
    assert admitted_at_s == pytest.approx(10.2)
    assert (admitted.memory_s, admitted.fetch_s) == pytest.approx((0.0, 0.2))
    assert times(seen, FirstToken) == [10.42]
    assert second.memory.host.match(again.request.hashes, 0) == 30


def test_nothing_is_there_before_it_is_written() -> None:
    """A replica that asks too early computes it again."""
    tier = make_tier(link_tokens_per_s=100.0)
    first, second = make_replica("a", tier), make_replica("b", tier)
    begin, again = make_turns((200, 1), (200, 1))
    first.submit(begin, 0.0)
    first.advance(0.5)  # it's computed after 0.4 s, and written after 2.4 s
    assert second.submit(again, 0.5) == [Admitted(again, Hit(0, 0), 0.0, 0.0)]
    finish(first)
    assert set(begin.request.hashes) <= set(tier.cached)


def test_those_behind_a_fetch_go_on() -> None:
    """A request that waits for the tier holds nothing, and holds up nobody."""
    tier = make_tier(link_tokens_per_s=100.0)
    first, second = make_replica("a", tier), make_replica("b", tier, blocks=30)
    begin, again = make_turns((200, 1), (200, 1), name="a")
    [other] = make_turns((290, 1), name="b")
    first.submit(begin, 0.0)
    finish(first)
    assert second.submit(again, 10.0) == []
    [admitted] = second.submit(other, 10.0)
    assert isinstance(admitted, Admitted)
    assert admitted.turn == other
    assert [one.turn for _, one in finish(second)][-1] == again


def test_siblings_fetch_once() -> None:
    """What is on its way for one request comes for the others too."""
    tier = make_tier()
    first, second = make_replica("a", tier), make_replica("b", tier)
    begin, again, longer = make_turns((200, 1), (201, 1), (300, 1))
    first.submit(begin, 0.0)
    finish(first)
    second.submit(again, 10.0)
    second.submit(longer, 10.0)
    admitted = [(at_s, one) for at_s, one in finish(second) if isinstance(one, Admitted)]
    assert admitted[0][0] == pytest.approx(10.2)
    assert [one.hit.restored_blocks for _, one in admitted] == [20, 20]


def test_fetches_queue_at_the_link_and_at_the_backend() -> None:
    """One after another for one replica; and all replicas share what the backend can do."""
    alone = make_tier(link_tokens_per_s=1000.0, backend_tokens_per_s=1500.0)
    assert alone.transfer(1000, 0.0) == pytest.approx(1.0)
    assert alone.transfer(1000, 0.0) == pytest.approx(4 / 3)
    assert alone.transfer(1000, 10.0) == pytest.approx(11.0)
    tier = make_tier()
    first, second = make_replica("a", tier), make_replica("b", tier)
    for name in "ab":
        [begin] = make_turns((200, 1), name=name)
        first.submit(begin, first.next_at_s if first.next_at_s < inf else 0.0)
    finish(first)
    for name in "ab":
        second.submit(make_turns((201, 1), name=name)[0], 10.0)
    admitted = [round(at_s, 6) for at_s, one in finish(second) if isinstance(one, Admitted)]
    assert admitted[0] == 10.2
    assert admitted[1] >= 10.4
    assert second.state.fetch_tokens_per_s == pytest.approx(
        (1000 * 0.95**2 + 200 * 0.95 + 200) / (0.95**2 + 0.2 * 0.95 + 0.2)
    )


def test_a_full_tier_evicts_what_was_moved_least_recently() -> None:
    """Of what was written at once the end goes first; reading counts as use."""
    tier = make_tier(total=6)
    assert tier.write(blocks(1, 2, 3)) == []
    assert tier.write(blocks(11, 12, 13)) == []
    tier.read(blocks(1, 2))
    assert tier.write(blocks(21, 22)) == blocks(3, 13)
    assert set(tier.cached) == {1, 2, 11, 12, 21, 22}


def test_a_prompt_can_lose_its_beginning() -> None:
    """A session that finds it in its replica's own memory never uses it in the tier."""
    tier = make_tier(total=30)
    engine = make_replica("a", tier)
    for turn in make_turns((100, 1), (200, 1), (300, 1), (400, 1)):
        engine.submit(turn, 100.0)
        finish(engine)
    assert set(tier.cached) == set(turn.request.hashes[10:])


def test_events_tell_of_the_tier() -> None:
    """An index learns from whichever replica wrote or made room, and believes it of all."""
    tier = make_tier(total=30)
    first, second = make_replica("a", tier), make_replica("b", tier)
    index = PrefixIndex(1.0, 0.0, 0, 1000)
    for name in "abc":
        index.apply(EventBatch(ReplicaId(name), 1, 0, []), 0.0)
    begin, longer = make_turns((100, 1), (200, 1))
    for turn in (begin, longer):
        first.submit(turn, 0.0 if turn is begin else 10.0)
        finish(first)
    stored = shared_events(first)
    assert [type(one) for one in stored] == [Stored, Stored]
    index.apply(EventBatch(ReplicaId("a"), 1, 1, stored), 20.0)
    assert index.match(longer.request.hashes)[ReplicaId("c")] == Match(0, 0, 20)
    [other] = make_turns((150, 1), name="other")
    second.submit(other, 20.0)
    finish(second)
    removed = shared_events(second)[-1]
    assert removed == Removed(Tier.SHARED, [EngineHash(h) for h in begin.request.hashes[9:4:-1]])
    index.apply(EventBatch(ReplicaId("b"), 1, 1, [removed]), 30.0)
    assert index.match(longer.request.hashes)[ReplicaId("c")] == Match(0, 0, 5)


def test_speeds_come_in_gb_a_second() -> None:
    """72 KB a token: 10 GB/s are 139,000 tokens/s; and CPU memory is needed."""
    size = SharedTierSize.of(PRESETS["kimi-b200-host"], 10, 1e6, 100)
    assert size.link_tokens_per_s == pytest.approx(139_000, rel=0.01)
    assert size.backend_tokens_per_s == pytest.approx(1_390_000, rel=0.01)
    with pytest.raises(ValueError, match="there is none"):
        SharedTierSize.of(PRESETS["kimi-b200"], 10, 1e6, 100)


def test_what_cpu_memory_cannot_take_is_computed() -> None:
    """Nobody waits for what can't come."""
    tier = make_tier()
    first, second = make_replica("a", tier), make_replica("b", tier, host_blocks=10)
    begin, again = make_turns((200, 1), (300, 1))
    first.submit(begin, 0.0)
    finish(first)
    second.submit(again, 10.0)
    [admitted] = [one for _, one in finish(second) if isinstance(one, Admitted)]
    assert admitted.hit == Hit(0, 0)

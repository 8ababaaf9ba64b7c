"""Stories of blocks that are taken, published, released and evicted."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.host_cache import HostCache
from policies.types import BlockHash


def prompt(name: int, blocks: int) -> list[BlockHash]:
    """Return the hashes of a prompt; prompts of one name extend each other."""
    return [BlockHash(name * 1000 + i) for i in range(blocks)]


def run(pool: BlockPool, hashes: list[BlockHash], extra: int = 0) -> list[BlockHash]:
    """Let a request come and go; return what was evicted for it."""
    matched = pool.match(hashes)
    assert pool.fits(hashes, matched, len(hashes) + extra)
    evicted = pool.take(hashes, matched, len(hashes) + extra)
    pool.publish(hashes[matched:])
    pool.release(hashes, extra)
    return evicted


def test_the_end_of_a_prompt_is_evicted_before_its_beginning() -> None:
    """The least recent prompt loses its last blocks first."""
    pool = BlockPool(10)
    run(pool, prompt(1, 4))
    run(pool, prompt(2, 4))
    assert run(pool, prompt(3, 5)) == [1003, 1002, 1001]
    assert (pool.match(prompt(1, 4)), pool.match(prompt(2, 4))) == (1, 4)


def test_a_reused_prompt_is_recent() -> None:
    """Using blocks moves them behind others in the order of eviction."""
    pool = BlockPool(10)
    run(pool, prompt(1, 4))
    run(pool, prompt(2, 4))
    run(pool, prompt(1, 4))
    assert run(pool, prompt(3, 5)) == [2003, 2002, 2001]


def test_blocks_in_use_are_not_evicted() -> None:
    """What does not fit beside them has to wait."""
    pool = BlockPool(10)
    first = prompt(1, 6)
    pool.take(first, 0, 6)
    assert not pool.fits(prompt(2, 5), 0, 5)
    assert pool.fits(prompt(2, 4), 0, 4)
    pool.publish(first)
    assert pool.fits(prompt(1, 10), 6, 10)


def test_private_blocks_are_reused_first() -> None:
    """What holds nothing reusable is taken before any cached block is evicted."""
    pool = BlockPool(10)
    run(pool, prompt(1, 4), extra=3)
    assert run(pool, prompt(2, 6)) == []


def test_blocks_computed_twice_are_held_once() -> None:
    """The second request takes over the first one's blocks, and its own are free again."""
    pool = BlockPool(10)
    both = prompt(1, 4)
    pool.take(both, 0, 4)
    pool.take(both, 0, 4)
    assert pool.publish(both) == both
    assert pool.publish(both) == []
    assert pool.free == 6
    pool.release(both, 0)
    assert pool.free == 6
    pool.release(both, 0)
    assert pool.free == 10


def test_answers_stay_until_evicted() -> None:
    """An answer's full blocks are cached like a prompt's."""
    pool = BlockPool(10)
    hashes = prompt(1, 4)
    pool.take(hashes, 0, 6)
    pool.publish(hashes)
    answer = pool.publish_answer(2)
    pool.release([*hashes, *answer], 0)
    assert pool.free == 10
    assert run(pool, prompt(2, 7)) == [*reversed(answer), 1003]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 8), st.booleans()), max_size=40))
def test_pool_invariants(steps: list[tuple[int, int, bool]]) -> None:
    """Blocks in use and free make the total; a match is what a walk along the prompt finds."""
    pool = BlockPool(20)
    running: list[tuple[list[BlockHash], int]] = []
    for name, blocks, finish in steps:
        hashes = prompt(name, blocks)
        matched = pool.match(hashes)
        assert matched == next((i for i, b in enumerate(hashes) if b not in pool.cached), blocks)
        if pool.fits(hashes, matched, blocks + 1):
            pool.take(hashes, matched, blocks + 1)
            pool.publish(hashes[matched:])
            running.append((hashes, 1))
        if finish and running:
            pool.release(*running.pop(0))
        in_use = {block for hashes, _ in running for block in hashes}
        assert pool.free == 20 - len(in_use) - len(running)
        assert len(pool.cached) <= 20
        assert in_use <= set(pool.cached)


def test_host_cache_keeps_what_was_used_last() -> None:
    """A use counts, of a prompt the end goes first, and what is offered stays."""
    host = HostCache(6)
    for name in (1, 2):
        assert host.store(prompt(name, 3)) == (prompt(name, 3), [])
        host.use(prompt(name, 3))
    host.use(prompt(1, 3))
    assert host.store(prompt(3, 1)) == ([3000], [2002])
    assert host.store(prompt(2, 4)) == ([2002, 2003], [1002, 1001])
    assert host.match(prompt(2, 4), 1) == 4


def test_host_cache_may_lose_a_beginning() -> None:
    """What was used goes on being there, although nothing can be read beyond what is missing."""
    host = HostCache(4)
    host.store(prompt(1, 4))
    host.use(prompt(1, 4)[2:])
    assert host.store(prompt(2, 1)) == ([2000], [1000])
    assert (host.match(prompt(1, 4), 0), host.match(prompt(1, 4), 1)) == (0, 4)


def test_host_cache_adds_nothing_where_not_all_fits() -> None:
    """A prompt longer than the memory evicts nothing."""
    host = HostCache(4)
    host.store(prompt(1, 3))
    assert host.store(prompt(2, 5)) == ([], [])
    assert host.match(prompt(1, 3), 0) == 3

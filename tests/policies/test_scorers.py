"""Each scorer's seconds, worked out by hand.

Unless a case says otherwise the prompt has 1,000 tokens in 100 blocks of 10, the replica 1,000
free blocks, and it prefills 1,000 tokens/s, restores 10,000 and fetches 5,000.
"""

import pytest

from policies.candidate import Candidate
from policies.in_flight import Load
from policies.releases import Release
from policies.residency import Residents
from policies.scorers import SCORERS
from policies.scorers.kv_locality import kv_locality
from policies.scorers.kv_pressure import kv_pressure
from policies.scorers.queue_depth import queue_depth
from policies.tunables import SCORER_NAMES, Tunables
from policies.types import Tier
from tests.policies.makers import make_candidate, make_request

TUNABLES = Tunables(decode_share_ratio=0.1, interference_ratio=0.2, eviction_cost_ratio=0.5)


@pytest.mark.parametrize(
    ("candidate", "seconds"),
    [
        (make_candidate(), 0),
        (make_candidate(load=Load(uncached_tokens=3000)), 3),
        (make_candidate(load=Load(uncached_tokens=3000), prefill_tokens_per_s=500), 6),
        (make_candidate(load=Load(uncached_tokens=3000, decoding=5)), 3 * 1.5),
        (make_candidate(load=Load(decoding=5)), 0),
        # Fetches of others delay only those that fetch.
        (make_candidate(load=Load(fetched_tokens=10_000), shared=50), 10_000 / 5000),
        (make_candidate(load=Load(fetched_tokens=10_000), cpu=50), 0),
        (make_candidate(load=Load(3000, fetched_tokens=5000), shared=1), 3 + 1),
        # 80 blocks are free, 920 pinned by nobody knows whom: the missing 20 come after 20 / 920
        # of the time for which requests hold their memory.
        (make_candidate(free_blocks=80), 10 * 20 / 920),
        (make_candidate(load=Load(blocks=920)), 10 * 20 / 920),
        (make_candidate(load=Load(blocks=920), free_blocks=50), 10 * 50 / 950),
        (make_candidate(free_blocks=80, gpu=60), 10 * 20 / 920),
        (make_candidate(free_blocks=80, gpu=60, session_requests=1), 0),
        (make_candidate(free_blocks=30, gpu=60, session_requests=1), 10 * 10 / 970),
        (make_candidate(free_blocks=80, hold_s=3), 3 * 20 / 920),
        (make_candidate(free_blocks=0, load=Load(uncached_tokens=500)), 0.5 + 10 * 100 / 1000),
        # The first of two requests ends sooner than the earlier one alone.
        (make_candidate(free_blocks=80, releases=[Release(6, 20), Release(3, 500)]), 2),
        (make_candidate(free_blocks=80, releases=[Release(6, 20), Release(3, 10)]), 2 + 6),
        (make_candidate(free_blocks=80, releases=[Release(6, 10)]), 6 + 10 * 10 / 920),
        # A prompt as large as the whole cache waits for all of it.
        (make_candidate(free_blocks=90, total_blocks=100), 10 * 10 / 10),
        (make_candidate(free_blocks=20, total_blocks=50), 10 * 30 / 30),
    ],
)
def test_queue_depth(candidate: Candidate, seconds: float) -> None:
    """Prefills and fetches before this one, and GPU memory that has to be released."""
    assert queue_depth(candidate, TUNABLES) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("candidate", "seconds"),
    [
        (make_candidate(), 1),
        (make_candidate(gpu=70), 0.3),
        (make_candidate(gpu=20, cpu=50), 0.05 + 0.3),
        (make_candidate(gpu=20, cpu=40, shared=10), 0.02 + 0.05 + 0.3),
        (make_candidate(gpu=20, cpu=40, shared=10, prefill_tokens_per_s=100), 0.02 + 0.05 + 3),
        (make_candidate(gpu=70, load=Load(decoding=5)), 0.3 * 2),
        (make_candidate(cpu=70, load=Load(decoding=5)), 0.07 + 0.3 * 2),
        (make_candidate(gpu=70, load=Load(prefilling=5)), 0.3),
        (make_candidate(gpu=100), 0.001),  # engines compute the last token whatever they hold
        (make_candidate(gpu=100, request=make_request(prompt_tokens=1009)), 0.009),
    ],
)
def test_kv_locality(candidate: Candidate, seconds: float) -> None:
    """Restoring, fetching, recomputing, and what recomputing costs those that decode there."""
    assert kv_locality(candidate, TUNABLES) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("candidate", "seconds"),
    [
        (make_candidate(), 0),
        (make_candidate(residents=Residents(9, 900)), 0),
        # 930 + 100 blocks are 30 more than there are: 300 tokens, at half the price.
        (make_candidate(residents=Residents(9, 930)), 0.15),
        (make_candidate(residents=Residents(9, 930), prefill_tokens_per_s=500), 0.3),
        (make_candidate(residents=Residents(9, 500), free_blocks=570), 0.15),
        (make_candidate(residents=Residents(9, 500), load=Load(blocks=430)), 0.15),
        (make_candidate(residents=Residents(9, 5000)), 0.5),
        (make_candidate(residents=Residents(9, 5000), gpu=60), 0.2),
        (make_candidate(residents=Residents(9, 5000), gpu=100), 0),
        (make_candidate(residents=Residents(9, 5000), gpu=20, cpu=30), 0.25),
        (make_candidate(residents=Residents(9, 5000), shared=100), 0.5),
        # A fifth of the fleet's blocks is in the shared tier, too, at 5,000 tokens/s.
        (make_candidate(residents=Residents(9, 930), shared_ratio=0.2), 0.012 + 0.8 * 0.15),
        (make_candidate(residents=Residents(9, 930), shared_ratio=1.0), 0.06),
    ],
)
def test_kv_pressure(candidate: Candidate, seconds: float) -> None:
    """Getting back what the request's new blocks evict, and no more than those."""
    assert kv_pressure(candidate, TUNABLES) == pytest.approx(seconds)


def test_names() -> None:
    """There is a default weight for each scorer, and wrong names are refused."""
    assert set(SCORERS) == set(SCORER_NAMES) == set(Tunables().weights)
    with pytest.raises(ValueError, match="kv_localty"):
        Tunables(weights={"kv_localty": 1, "queue_depth": 1, "kv_pressure": 1})
    with pytest.raises(ValueError, match="kv_pressure"):
        Tunables(weights={"kv_locality": 1, "queue_depth": 1})


def test_what_a_candidate_has() -> None:
    """Cached tokens are told by tier; requests and pinned blocks by whoever says more."""
    candidate = make_candidate(
        gpu=2, cpu=3, shared=4, running=2, waiting=3, load=Load(prefilling=1, decoding=2)
    )
    assert candidate.cached_tokens == {Tier.GPU: 20, Tier.CPU: 30, Tier.SHARED: 40}
    assert candidate.requests == 5
    assert make_candidate(load=Load(prefilling=4, decoding=2), running=5).requests == 6
    assert make_candidate(free_blocks=900, load=Load(blocks=50)).pinned_blocks == 100
    assert make_candidate(free_blocks=900, load=Load(blocks=5000)).pinned_blocks == 1000


@pytest.mark.parametrize(
    ("candidate", "is_open", "has_room"),
    [
        (make_candidate(), True, True),
        (make_candidate(free_blocks=100), True, True),
        (make_candidate(free_blocks=99), True, False),
        (make_candidate(draining=True), False, False),
        (make_candidate(running=10, waiting=5), True, True),
        (make_candidate(running=10, waiting=6), False, False),
    ],
)
def test_room(candidate: Candidate, is_open: bool, has_room: bool) -> None:
    """A replica has room if it takes requests and nothing has to be released first."""
    assert (candidate.is_open, candidate.has_room) == (is_open, has_room)

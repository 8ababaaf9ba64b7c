"""Each token of a prompt is a hit in one tier or a miss of one kind."""

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from policies.kv_events import EngineHash, Event, EventBatch, Removed
from policies.match import Match
from policies.misses import Foreseen, PromptTokens, foresee, judge, split_by_tier
from policies.prefix_index import PrefixIndex
from policies.types import ReplicaId, Tier
from tests.policies.makers import make_hashes, make_stored

HERE, THERE = ReplicaId("r1"), ReplicaId("r2")
counts = st.integers(0, 50)
matches = st.builds(Match, counts, counts, counts)
tokens = st.builds(PromptTokens, counts, counts, counts, counts, counts, counts)


def _index() -> PrefixIndex:
    """Return an index of two replicas: both had blocks 1 to 4, of which the second kept 1 to 3."""
    index = PrefixIndex(expect_s=30, remember_s=3600, max_remembered=100, max_shared=100)
    names = [1, 2, 3, 4]
    gone = {HERE: names, THERE: names[3:]}
    for replica, lost in gone.items():
        events: list[Event] = [
            make_stored(*names, names=names),
            Removed(Tier.GPU, [*map(EngineHash, lost)]),
        ]
        index.apply(EventBatch(replica, 1, 0, events), now_s=0)
    return index


def test_kinds_of_misses() -> None:
    """Three blocks are elsewhere, one is evicted, and what follows is first seen."""
    index, hashes = _index(), make_hashes(1, 2, 3, 4, 5)
    foreseen = foresee(hashes, index.match(hashes), HERE, index)
    assert foreseen == Foreseen(Match(0), elsewhere_blocks=3, seen_blocks=4)
    assert judge(foreseen, 21, 4, {}) == PromptTokens(
        elsewhere_tokens=12, evicted_tokens=4, first_seen_tokens=5
    )


def test_evicted_between_placing_and_prefill() -> None:
    """What the chosen replica was thought to have and did not reuse was evicted."""
    index, hashes = _index(), make_hashes(1, 2, 3, 4, 5)
    foreseen = foresee(hashes, index.match(hashes), THERE, index)
    assert foreseen == Foreseen(Match(3), elsewhere_blocks=0, seen_blocks=4)
    assert judge(foreseen, 21, 4, {Tier.GPU: 4}) == PromptTokens(
        gpu_hit_tokens=4, evicted_tokens=12, first_seen_tokens=5
    )


def test_unheard_of() -> None:
    """All of a prompt that shares nothing with others is first seen."""
    index, hashes = _index(), make_hashes(7, 8)
    foreseen = foresee(hashes, index.match(hashes), HERE, index)
    assert judge(foreseen, 10, 4, {}) == PromptTokens(first_seen_tokens=10)


def test_last_token_is_computed() -> None:
    """The block of a prompt's last token can't be reused, so that nothing is missed there."""
    assert judge(Foreseen(Match(2), 0, 2), 8, 4, {Tier.GPU: 4}) == PromptTokens(
        gpu_hit_tokens=4, first_seen_tokens=4
    )


def test_forgotten_is_first_seen() -> None:
    """What was evicted longer ago than is remembered is first seen."""
    index, hashes = _index(), make_hashes(1, 2, 3, 4, 5)
    index.expire(now_s=4000)
    foreseen = foresee(hashes, index.match(hashes), HERE, index)
    assert judge(foreseen, 21, 4, {}) == PromptTokens(elsewhere_tokens=12, first_seen_tokens=9)


@given(
    match=matches,
    elsewhere=counts,
    seen=counts,
    prompt=st.integers(0, 500),
    cached=st.dictionaries(st.sampled_from(Tier), st.integers(0, 600)),
)
def test_sums(
    match: Match, elsewhere: int, seen: int, prompt: int, cached: dict[Tier, int]
) -> None:
    """Hits and misses sum to the prompt, none is negative, and reported hits are hits."""
    known = Foreseen(match, elsewhere, max(seen, elsewhere, match.blocks))
    judged = judge(known, prompt, 4, cached)
    assert judged.prompt_tokens == prompt
    assert min(astuple(judged)) >= 0
    assert judged.hit_tokens == min(prompt, sum(cached.values()))


@given(cached=st.integers(0, 1000), match=matches)
def test_split_by_tier(cached: int, match: Match) -> None:
    """A sum is split without rest; slower tiers have at most what they were known to have."""
    split = split_by_tier(cached, match, 4)
    assert sum(split.values()) == cached
    assert 0 <= split[Tier.CPU] <= match.cpu_blocks * 4
    assert 0 <= split[Tier.SHARED] <= match.shared_blocks * 4
    if cached <= match.gpu_blocks * 4:
        assert split[Tier.GPU] == cached

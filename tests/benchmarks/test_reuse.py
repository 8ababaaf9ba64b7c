"""The accounting of reuse: stories told by hand, and what holds for every story."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.exchange import Exchange
from benchmarks.reuse import Reuse, account
from policies.types import ReplicaId, SessionId

BLOCK = 4
clock = count()


def exchange(
    replica: str, prompt: str, answer: str = "", cached_tokens: int = 0, sent_s: float | None = None
) -> Exchange:
    """One character is one token; without `sent_s` it is sent after all that came before it."""
    sent_s = float(next(clock)) if sent_s is None else sent_s
    return Exchange(
        session=SessionId("s"),
        replica=ReplicaId(replica),
        prompt=[ord(token) for token in prompt],
        answer=[ord(token) for token in answer],
        cached_tokens=cached_tokens,
        expected_cached_tokens=None,
        sent_s=sent_s,
        first_token_s=sent_s + 0.25,
        ended_s=sent_s + 0.5,
    )


def last(*exchanges: Exchange) -> Reuse:
    """Return what the last exchange adds."""
    both, before = account(exchanges, BLOCK), account(exchanges[:-1], BLOCK)
    return Reuse(
        both.hit_tokens - before.hit_tokens,
        both.first_seen_tokens - before.first_seen_tokens,
        both.evicted_tokens - before.evicted_tokens,
        both.elsewhere_tokens - before.elsewhere_tokens,
    )


def test_a_first_prompt_is_first_seen() -> None:
    """Nothing was there to be reused."""
    assert account([exchange("a", "abcdefgh")], BLOCK) == Reuse(first_seen_tokens=8)


def test_the_last_tokens_block_is_never_available() -> None:
    """Of a repeated prompt of two blocks, the second is computed again, whatever is cached."""
    repeated = last(exchange("a", "abcdefgh"), exchange("a", "abcdefgh", cached_tokens=4))
    assert repeated == Reuse(hit_tokens=4, first_seen_tokens=4)


def test_evicted_and_elsewhere() -> None:
    """A block that is missed was evicted if its replica had it once, else it is elsewhere."""
    turn = exchange("a", "abcdefgh")
    assert last(turn, exchange("a", "abcdefghi")) == Reuse(first_seen_tokens=1, evicted_tokens=8)
    assert last(turn, exchange("b", "abcdefghi")) == Reuse(first_seen_tokens=1, elsewhere_tokens=8)


def test_each_block_is_judged_alone() -> None:
    """Behind a hit, a block that the replica had is evicted and one that it never had elsewhere."""
    story = [exchange("a", "abcd"), exchange("a", "abcdefgh"), exchange("b", "abcdefghijkl")]
    back = exchange("a", "abcdefghijklm", cached_tokens=4)
    assert last(*story, back) == Reuse(4, 1, evicted_tokens=4, elsewhere_tokens=4)


def test_a_partly_hit_block() -> None:
    """Where cached tokens end within a block, the rest of it is the miss."""
    story = [exchange("a", "abcdefgh"), exchange("a", "abcdefghi", cached_tokens=6)]
    assert last(*story) == Reuse(hit_tokens=6, first_seen_tokens=1, evicted_tokens=2)


def test_an_answer_is_available_but_for_its_last_token() -> None:
    """The next turn can reuse the blocks that the answer filled; its last token has no KV."""
    long = last(exchange("a", "abcd", "efghi"), exchange("a", "abcdefghijk"))
    assert long.available_tokens == 8
    short = last(exchange("a", "abcd", "efgh"), exchange("a", "abcdefghijk"))
    assert short.available_tokens == 4


def test_what_was_sent_is_there_and_what_is_being_answered_is_not_yet() -> None:
    """A sibling sent meanwhile finds the prompt, and the answer only once that has ended."""
    turn = exchange("a", "abcd", "efghi", sent_s=0.0)
    early = exchange("a", "abcdefghijk", sent_s=0.4)
    late = exchange("a", "abcdefghijk", sent_s=0.6)
    assert account([turn, early], BLOCK).available_tokens == 4
    assert account([turn, late], BLOCK).available_tokens == 8


def test_order_of_the_list_does_not_matter() -> None:
    """Exchanges are listed as they end; times say what came first."""
    story = [exchange("a", "abcdefgh", "ijkl"), exchange("b", "abcdefghijkl")]
    assert account(story, BLOCK) == account(story[::-1], BLOCK)


def test_another_beginning_is_another_block() -> None:
    """Equal tokens behind different ones are not available."""
    assert last(exchange("a", "abcdefgh"), exchange("a", "xbcdefghi")).available_tokens == 0


def test_a_hit_was_available_whoever_computed_it() -> None:
    """A service may hold what it was sent before the replay."""
    assert account([exchange("a", "abcdefghi", cached_tokens=8)], BLOCK) == Reuse(8, 1)


@pytest.mark.parametrize("block_size", [1, 3, 4])
@given(
    turns=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.text("xy", min_size=1, max_size=12),
            st.text("xy", max_size=6),
            st.integers(0, 12),
            st.floats(0, 3),
        ),
        max_size=12,
    )
)
def test_every_prompt_token_is_counted_once(
    block_size: int, turns: list[tuple[str, str, str, int, float]]
) -> None:
    """Hit, first seen, evicted and elsewhere are never negative and sum to the prompts."""
    story = [
        exchange(replica, prompt, answer, min(cached, len(prompt) - 1), sent_s)
        for replica, prompt, answer, cached, sent_s in turns
    ]
    reuse = account(story, block_size)
    assert reuse.prompt_tokens == sum(len(one.prompt) for one in story)
    assert reuse.hit_tokens == sum(one.cached_tokens for one in story)
    assert min(reuse.first_seen_tokens, reuse.evicted_tokens, reuse.elsewhere_tokens) >= 0
    if len({one.replica for one in story}) == 1:
        assert reuse.elsewhere_tokens == 0

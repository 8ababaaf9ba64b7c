"""What a session's prompts have in common."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.types import SessionId
from serve_app.last_prompts import (
    GENERATION_PROMPT_TOKENS,
    LastPrompts,
    Overlap,
    PromptNumber,
    shared_tokens,
)
from serve_app.segment_encoder import Ids

ONE, OTHER = SessionId("one"), SessionId("other")


def _ids(*tokens: int) -> Ids:
    return np.array(tokens, np.uint32)


def _long(first: int) -> Ids:
    return np.arange(first, first + 10 * GENERATION_PROMPT_TOKENS, dtype=np.uint32)


def _overlap(earlier: int, tokens: int) -> Overlap:
    return Overlap(PromptNumber(earlier), tokens)


def _segments(tokens: list[int], sizes: list[int]) -> list[Ids]:
    parts = []
    for size in sizes:
        parts.append(_ids(*tokens[:size]))
        tokens = tokens[size:]
    return [*parts, _ids(*tokens)]


tokens = st.lists(st.integers(0, 1), max_size=8)
sizes = st.lists(st.integers(0, 3), max_size=3)


@given(tokens, tokens, sizes, sizes)
def test_shared_tokens_are_shared(a: list[int], b: list[int], at: list[int], bt: list[int]) -> None:
    """Shared tokens are equal; with equal segments they are all that are."""
    equal = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    most = min(len(a), len(b)) if equal is None else equal
    assert shared_tokens(_segments(a, at), _segments(b, bt)) <= most
    assert shared_tokens([_ids(*a)], [_ids(*b)]) == most
    assert shared_tokens(_segments(a, at), _segments(a, at)) == len(a)


def test_a_turn_continues_the_last_one() -> None:
    """Each turn overlaps with the one before it, also where the end was written otherwise."""
    last, history, sub = LastPrompts(2, 2), _long(0), [_long(1000)]
    last.add(ONE, sub)
    assert last.add(ONE, [history, _ids(7)]) == (1, None)
    assert last.add(ONE, [history, _ids(8), _long(900)]) == (2, _overlap(1, 160))
    assert last.add(ONE, [history, _ids(8), _long(900), _ids(5)]) == (3, _overlap(2, 321))
    assert last.add(ONE, sub) == (4, _overlap(0, 160))


def test_a_rewritten_history_is_a_lineage_of_its_own() -> None:
    """Of prompts that are as much alike, the newest is meant."""
    last, system = LastPrompts(1, 4), _long(0)
    last.add(ONE, [system, _long(1000)])
    assert last.add(ONE, [system, _long(2000)]) == (1, _overlap(0, 160))
    assert last.add(ONE, [system, _long(3000)]) == (2, _overlap(1, 160))
    assert last.add(ONE, [system, _long(1000), _ids(1)]) == (3, _overlap(0, 320))


def test_the_oldest_lineage_goes_first() -> None:
    """A session has so many lineages and no more."""
    last = LastPrompts(1, 2)
    main, sub, third = [_long(0)], [_long(1000)], [_long(2000)]
    last.add(ONE, main)
    last.add(ONE, sub)
    assert last.add(ONE, main) == (2, _overlap(0, 160))
    assert last.add(ONE, third) == (3, None)
    assert last.add(ONE, sub) == (4, None)


def test_sessions_are_apart() -> None:
    """Another session's prompts are not looked at; nor are nobody's."""
    last = LastPrompts(2, 2)
    last.add(ONE, [_long(0)])
    assert last.add(OTHER, [_long(0)]) == (1, None)
    assert last.add(None, [_long(0)]) == (2, None)
    assert last.add(None, [_long(0)]) == (3, None)


def test_the_session_that_spoke_least_recently_is_forgotten() -> None:
    """So many sessions are remembered and no more."""
    last = LastPrompts(2, 2)
    for session in (ONE, OTHER, ONE, SessionId("third")):
        last.add(session, [_long(0)])
    assert last.add(ONE, [_long(0)]) == (4, _overlap(2, 160))
    assert last.add(OTHER, [_long(0)]) == (5, None)

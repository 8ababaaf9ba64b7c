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
    last, history = LastPrompts(2, 1), _long(0)
    assert last.add(ONE, [history, _ids(7)]) == (0, None)
    assert last.add(ONE, [history, _ids(8), _long(900)]) == (1, Overlap(PromptNumber(0), 160))
    assert last.add(ONE, [history, _ids(8), _long(900)]) == (2, Overlap(PromptNumber(1), 321))


def test_lineages_do_not_disturb_each_other() -> None:
    """A subagent's turns leave the main thread's where it was; the oldest lineage goes first."""
    last = LastPrompts(2, 2)
    main, sub, third = [_long(0)], [_long(1000)], [_long(2000)]
    last.add(ONE, main)
    last.add(ONE, sub)
    assert last.add(ONE, main) == (2, Overlap(PromptNumber(0), 160))
    assert last.add(ONE, third) == (3, None)
    assert last.add(ONE, sub) == (4, None)


def test_sessions_are_apart_and_bounded() -> None:
    """Another session's prompts, and forgotten ones, are not looked at; nor are nobody's."""
    last = LastPrompts(1, 2)
    last.add(ONE, [_long(0)])
    assert last.add(None, [_long(0)]) == (1, None)
    assert last.add(None, [_long(0)]) == (2, None)
    assert last.add(OTHER, [_long(0)]) == (3, None)
    assert last.add(ONE, [_long(0)]) == (4, None)

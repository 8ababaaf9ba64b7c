"""What a session's prompts have in common."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policies.types import SessionId
from serve_app.last_prompts import (
    GENERATION_PROMPT_TOKENS,
    LastPrompts,
    Overlap,
    RememberedPrompt,
    shared_tokens,
)
from serve_app.segment_encoder import Ids

ONE, OTHER = SessionId("one"), SessionId("other")


def _ids(*tokens: int) -> Ids:
    return np.array(tokens, np.uint32)


def _long(first: int) -> Ids:
    return np.arange(first, first + 10 * GENERATION_PROMPT_TOKENS, dtype=np.uint32)


def _prompt(*segments: Ids) -> RememberedPrompt:
    return RememberedPrompt(segments)


def _segments(tokens: list[int], sizes: list[int]) -> list[Ids]:
    parts = []
    for size in sizes:
        parts.append(_ids(*tokens[:size]))
        tokens = tokens[size:]
    return [*parts, _ids(*tokens)]


tokens = st.lists(st.integers(0, 1), max_size=8)
sizes = st.lists(st.integers(0, 3), max_size=3)


@given(tokens, tokens, sizes, sizes)
def test_shared_tokens_are_counted(
    a: list[int], b: list[int], at: list[int], bt: list[int]
) -> None:
    """All leading tokens that are equal count, whatever segments they are in."""
    equal = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    most = min(len(a), len(b)) if equal is None else equal
    assert shared_tokens(_segments(a, at), _segments(b, bt)) == most


def test_a_turn_continues_the_last_one() -> None:
    """Each turn overlaps with the one before it, also where the end was written otherwise."""
    last, history = LastPrompts(2, 2), _long(0)
    sub, first = _prompt(_long(1000)), _prompt(history, _ids(7))
    second = _prompt(history, _ids(8), _long(900))
    assert last.add(ONE, sub) is None
    assert last.add(ONE, first) == Overlap(sub, 0)
    assert last.add(ONE, second) == Overlap(first, 160)
    assert last.add(ONE, _prompt(*second.segments, _ids(5))) == Overlap(second, 321)
    assert last.add(ONE, _prompt(*sub.segments)) == Overlap(sub, 160)


def test_continuing_is_having_all_but_the_generation_prompt() -> None:
    """A prompt of which more is gone is not continued, nor is one of which nothing is left."""
    prompt = _prompt(_long(0))
    assert Overlap(prompt, prompt.tokens - GENERATION_PROMPT_TOKENS).is_continued
    assert not Overlap(prompt, prompt.tokens - GENERATION_PROMPT_TOKENS - 1).is_continued
    assert not Overlap(_prompt(_ids(1, 2, 3)), 0).is_continued


def test_a_rewritten_history_is_a_lineage_of_its_own() -> None:
    """Of prompts that are as much alike, the newest is meant."""
    last, system = LastPrompts(1, 4), _long(0)
    first, second = _prompt(system, _long(1000)), _prompt(system, _long(2000))
    last.add(ONE, first)
    assert last.add(ONE, second) == Overlap(first, 160)
    assert last.add(ONE, _prompt(system, _long(3000))) == Overlap(second, 160)
    assert last.add(ONE, _prompt(system, _long(1000), _ids(1))) == Overlap(first, 320)


def test_the_oldest_lineage_goes_first() -> None:
    """A session has so many lineages and no more."""
    last = LastPrompts(1, 2)
    main, sub, third = [_prompt(_long(first)) for first in (0, 1000, 2000)]
    last.add(ONE, main)
    last.add(ONE, sub)
    again = _prompt(_long(0))
    assert last.add(ONE, again) == Overlap(main, 160)
    assert last.add(ONE, third) == Overlap(again, 0)
    assert last.add(ONE, _prompt(_long(1000))) == Overlap(third, 0)


def test_sessions_are_apart() -> None:
    """Another session's prompts are not looked at; nor are nobody's."""
    last = LastPrompts(2, 2)
    last.add(ONE, _prompt(_long(0)))
    assert last.add(OTHER, _prompt(_long(0))) is None
    assert last.add(None, _prompt(_long(0))) is None
    assert last.add(None, _prompt(_long(0))) is None


def test_the_session_that_spoke_least_recently_is_forgotten() -> None:
    """So many sessions are remembered and no more."""
    last = LastPrompts(2, 2)
    for session in (ONE, OTHER, ONE, SessionId("third")):
        last.add(session, _prompt(_long(0)))
    assert last.add(ONE, _prompt(_long(0))) is not None
    assert last.add(OTHER, _prompt(_long(0))) is None

"""Why turns broke their prefix, told as two prompts of one session."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.prefix_break import FEW_LINES, Kind, PrefixBreak, prefix_break
from policies.turn import MAX_PARTS, Turn

Said = tuple[str, str, str | None]

READ = {"name": "read", "parameters": {"path": "string"}}
WRITE = {"name": "write", "parameters": {"text": "string", "path": "string"}}
TOOLS: list[dict[str, Any]] = [READ, WRITE]
RULES = "\n".join(f"rule {i}" for i in range(20))
SYSTEM: Said = ("system", f"{RULES}\nnonce 1", None)


def _says(role: str, text: str, reasoning: str | None = None) -> Said:
    return role, text, reasoning


TASK = _says("user", "fix the test")
CALL = _says("assistant", "read(test.py)", "let me look")
RESULT = _says("tool", "assert False")
DONE = _says("assistant", "fixed")
THANKS = _says("user", "thanks")
HISTORY = [SYSTEM, TASK, CALL, RESULT, DONE, THANKS]


def _turn(messages: list[Said], tools: list[dict[str, Any]] = TOOLS) -> Turn:
    return Turn.of(tools, messages, prompt_tokens=100)


def _system(text: str) -> list[Said]:
    return [_says("system", text), *HISTORY[1:]]


def _quiet(message: Said) -> Said:
    return message[0], message[1], None


def _break(last: Turn, this: Turn) -> tuple[Kind, int | None, str | None]:
    found = prefix_break(last, this, common_tokens=30)
    assert found is not None
    assert (found.token, found.lost_tokens) == (30, 70)
    return found.kind, found.message_index, found.role


MORE = [*HISTORY, _says("assistant", "welcome"), _says("user", "now the other one")]
SUMMARY = _says("user", "what happened so far: the test was fixed")


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (_system(f"{RULES}\nnonce 2"), (Kind.VOLATILE_LINE, 0, "system")),
        (_system(f"nonce 2\n{RULES}\nnonce 1"), (Kind.VOLATILE_LINE, 0, "system")),
        (_system(RULES), (Kind.VOLATILE_LINE, 0, "system")),
        (_system(RULES.replace("rule 1", "law 1")), (Kind.SYSTEM_CHANGED, 0, "system")),
        (_system(f"nonce 1\n{RULES}"), (Kind.SYSTEM_CHANGED, 0, "system")),
        (HISTORY[1:], (Kind.SYSTEM_CHANGED, 0, "user")),
        ([SYSTEM, ("developer", "x", None), *HISTORY[1:]], (Kind.VOLATILE_LINE, 1, "developer")),
        (
            [*HISTORY[:3], _says("tool", "[cleared]"), *MORE[4:]],
            (Kind.HISTORY_REWRITTEN, 3, "tool"),
        ),
        ([SYSTEM, _says("user", "it is noon"), *MORE[2:]], (Kind.HISTORY_REWRITTEN, 1, "user")),
        ([*HISTORY[:5], _says("user", "no")], (Kind.HISTORY_REWRITTEN, 5, "user")),
        ([*HISTORY[:2], _says("user", "no")], (Kind.HISTORY_REWRITTEN, 2, "user")),
        ([SYSTEM, TASK, TASK], (Kind.HISTORY_REWRITTEN, 2, "user")),
        (HISTORY[:3], (Kind.HISTORY_REWRITTEN, 3, "tool")),
        ([*HISTORY[:2], _quiet(CALL), *MORE[3:]], (Kind.REASONING_STRIPPED, 2, "assistant")),
        (
            [*HISTORY[:2], _says("assistant", "read(x.py)"), *MORE[3:]],
            (Kind.HISTORY_REWRITTEN, 2, "assistant"),
        ),
        (
            [*HISTORY[:2], _says("assistant", "read(test.py)", "hm"), *MORE[3:]],
            (Kind.HISTORY_REWRITTEN, 2, "assistant"),
        ),
        ([SYSTEM, SUMMARY], (Kind.COMPACTION, 1, "user")),
        ([SYSTEM, SUMMARY, DONE, THANKS], (Kind.COMPACTION, 1, "user")),
        ([SYSTEM, TASK, DONE, THANKS], (Kind.COMPACTION, 2, "assistant")),
        ([("system", "You search.", None), SUMMARY], (Kind.OTHER_LINEAGE, 1, "user")),
        ([SYSTEM, *[SUMMARY] * 6], (Kind.OTHER_LINEAGE, 1, "user")),
        (MORE, (Kind.UNKNOWN, None, None)),
    ],
)
def test_what_changed_in_the_messages(
    messages: list[Said], expected: tuple[Kind, int | None, str | None]
) -> None:
    """The kind of change is told, and the first message that has it."""
    assert _break(_turn(HISTORY), _turn(messages)) == expected


@pytest.mark.parametrize(
    ("tools", "kind"),
    [
        ([WRITE, READ], Kind.TOOLS_REORDERED),
        ([READ, dict(reversed(WRITE.items()))], Kind.TOOLS_REORDERED),
        (
            [READ, {"name": "write", "parameters": {"path": "string", "text": "string"}}],
            Kind.TOOLS_REORDERED,
        ),
        ([READ], Kind.TOOLS_CHANGED),
        ([READ, READ], Kind.TOOLS_CHANGED),
        ([READ, WRITE, WRITE], Kind.TOOLS_CHANGED),
        ([READ, WRITE | {"name": "w"}], Kind.TOOLS_CHANGED),
        ([], Kind.TOOLS_CHANGED),
    ],
)
def test_what_changed_in_the_tools(tools: list[dict[str, Any]], kind: Kind) -> None:
    """Tools in another order are told from other tools; no message is to blame."""
    assert _break(_turn(HISTORY), _turn(MORE, tools)) == (kind, None, None)


def test_tools_come_before_the_system_prompt() -> None:
    """Where both changed the tools are named; a new conversation is named before either."""
    other = _system(f"{RULES}\nnonce 2")
    assert _break(_turn(HISTORY), _turn(other, [READ]))[0] == Kind.TOOLS_CHANGED
    assert _break(_turn(HISTORY), _turn([SYSTEM, SUMMARY], [READ]))[0] == Kind.OTHER_LINEAGE


def test_a_template_that_drops_reasoning() -> None:
    """Equal messages part where the user's new words end the reasoning before them."""
    working = HISTORY[:4]
    assert _break(_turn(working), _turn(HISTORY)) == (Kind.REASONING_STRIPPED, 2, "assistant")
    assert _break(_turn([CALL]), _turn([CALL, TASK])) == (Kind.REASONING_STRIPPED, 0, "assistant")


def test_a_turn_that_extends_the_last_is_no_break() -> None:
    """Tokens decide, whatever the messages look like."""
    assert prefix_break(_turn(HISTORY), _turn(MORE), 100) is None
    assert prefix_break(_turn(HISTORY), _turn([], []), 100) is None
    assert prefix_break(_turn(HISTORY), _turn(MORE), 99) == PrefixBreak(
        Kind.UNKNOWN, 99, None, None, 1
    )


def test_few_lines_are_volatile_more_are_another_prompt() -> None:
    """The limit between the two is the number of lines that changed."""
    lines = RULES.split("\n")
    for changed, kind in ((FEW_LINES, Kind.VOLATILE_LINE), (FEW_LINES + 1, Kind.SYSTEM_CHANGED)):
        other = [f"new {line}" for line in lines[:changed]] + lines[changed:]
        pair = _turn(_system(RULES)), _turn(_system("\n".join(other)))
        assert _break(*pair)[0] == kind


def test_what_is_kept_of_a_turn_is_bounded_and_holds_no_text() -> None:
    """A huge prompt keeps its first parts, and none of its words."""
    messages = [_says("system", "secret\n" * 5000), *[_says("user", "secret")] * 5000]
    turn = _turn(messages, [{"name": "secret"}] * 5000)
    assert {len(turn.tools), len(turn.messages), len(turn.system_lines)} == {MAX_PARTS}
    assert "secret" not in repr(turn)
    assert _turn([SYSTEM] * 5000).system == MAX_PARTS


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["system", "user", "assistant", "tool"]),
        st.sampled_from(["", "a", "b", "c\nd", "e\nf"]),
        st.sampled_from([None, "hm"]),
    ),
    max_size=6,
)
TURNS = st.builds(
    Turn.of,
    st.lists(st.sampled_from([{}, READ, WRITE]), max_size=3),
    MESSAGES,
    st.integers(0, 50),
)


@given(TURNS, TURNS, st.integers(0, 50))
def test_every_break_has_a_place(last: Turn, this: Turn, common: int) -> None:
    """Whatever two prompts are like, a break names a message that one has and the other has not."""
    found = prefix_break(last, this, common)
    assert (found is None) == (common >= last.prompt_tokens)
    if found is None:
        return
    assert found.lost_tokens == last.prompt_tokens - common > 0
    if found.message_index is None:
        assert found.role is None
        same = last.messages == this.messages[: len(last.messages)]
        assert (found.kind == Kind.UNKNOWN and same) or last.tools != this.tools
        return
    at = found.message_index
    theirs = [turn.messages[at : at + 1] for turn in (last, this)]
    assert found.role in {message.role for messages in theirs for message in messages}
    assert found.kind == Kind.REASONING_STRIPPED or theirs[0] != theirs[1]


@given(MESSAGES, MESSAGES)
def test_longer_histories_are_never_blamed(messages: list[Said], more: list[Said]) -> None:
    """Messages at the end are no change: only the template can have parted such prompts."""
    last = _turn([("user", "start", None), *messages])
    this = _turn([("user", "start", None), *messages, *more])
    assert _break(last, this)[0] in {Kind.UNKNOWN, Kind.REASONING_STRIPPED}


@given(st.lists(st.sampled_from("abcdef"), min_size=1), st.randoms(use_true_random=False))
def test_shuffled_tools_are_reordered(names: list[str], random: Any) -> None:
    """The same tools in any order, with their keys in any order, are the same set."""
    tools = [{"name": name, "parameters": {"x": name}} for name in names]
    shuffled = [dict(random.sample(list(tool.items()), 2)) for tool in tools]
    random.shuffle(shuffled)
    if json.dumps(shuffled) != json.dumps(tools):
        assert _break(_turn(MORE, tools), _turn(MORE, shuffled))[0] == Kind.TOOLS_REORDERED

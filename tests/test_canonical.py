"""What is taken from a request before it reaches a replica, and that nothing else changes."""

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.canonical import VolatileLines
from serve_app.config import GatewayConfig

BILLING = "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli; cch=0a1b2;"
KNOWN = VolatileLines(GatewayConfig().volatile_lines)


def _lines(*patterns: str) -> VolatileLines:
    return VolatileLines([re.compile(pattern) for pattern in patterns])


def _without(request: Any, lines: VolatileLines = KNOWN) -> Any:
    return json.loads(lines.removed_from(json.dumps(request).encode()).body)


def _block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def _says(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


USER = _says("user", "hi")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"system": f"{BILLING}\nYou are"}, {"system": "You are"}),
        ({"system": f"You are\n{BILLING}"}, {"system": "You are"}),
        ({"system": f"You\r\n{BILLING}\r\nare"}, {"system": "You\r\nare"}),
        ({"system": f"{BILLING}\n{BILLING}\n\nYou"}, {"system": "\nYou"}),
        ({"system": BILLING, "max_tokens": 1}, {"max_tokens": 1}),
        ({"system": [_block(BILLING), _block("You")]}, {"system": [_block("You")]}),
        ({"system": [_block(f"{BILLING}\nYou")]}, {"system": [_block("You")]}),
        ({"system": [_block(BILLING)], "messages": [USER]}, {"messages": [USER]}),
        (
            {"instructions": f"{BILLING}\nYou", "input": "hi"},
            {"instructions": "You", "input": "hi"},
        ),
        *(
            (
                {field: [_says(role, f"{BILLING}\nYou"), USER]},
                {field: [_says(role, "You"), USER]},
            )
            for field in ("messages", "input")
            for role in ("system", "developer")
        ),
        (
            {"messages": [_says("system", [_block(BILLING), _block("You")]), USER]},
            {"messages": [_says("system", [_block("You")]), USER]},
        ),
        ({"messages": [_says("system", BILLING), USER]}, {"messages": [USER]}),
        (
            {"messages": [_says("system", []), _says("system", BILLING)]},
            {"messages": [_says("system", [])]},
        ),
        ({"input": [_says("developer", [_block(f"{BILLING}\n")]), USER]}, {"input": [USER]}),
    ],
)
def test_the_line_goes_wherever_a_system_prompt_stands(before: Any, after: Any) -> None:
    """The line goes, and with it the text, block, message or field that held nothing else."""
    assert _without(before) == after


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [_says("user", BILLING), _says("assistant", [_block(BILLING)])]},
        {"messages": [_says("tool", f"{BILLING}\nx")], "prompt": BILLING, "input": BILLING},
        {"system": f"The line {BILLING} is not removed"},
        {"system": f" {BILLING}"},
        {
            "metadata": [_says("system", BILLING)],
            "x": {"system": BILLING},
            "tools": [{"description": BILLING}],
        },
        {"system": {"text": BILLING}, "messages": {"role": "system", "content": BILLING}},
        {"system": [BILLING, {"text": 1}, None], "messages": [BILLING, None, {"role": ["system"]}]},
        {"system": None, "messages": [_says("system", None), {"role": "system"}], "x": BILLING},
        {"system": [], "messages": [_says("system", [])], "x": BILLING},
        [{"system": BILLING}],
        BILLING,
    ],
)
def test_text_of_others_stays(body: Any) -> None:
    """What is no system prompt, or no whole line, or no request, is the very same bytes after."""
    content = json.dumps(body, indent=1).encode()
    assert KNOWN.removed_from(content).body is content


@pytest.mark.parametrize(
    "tail",
    [b"", b"]", b"}}", b', "a": NaN}', b', "a": 01}', b', "a": "\xff', b', "a": ' + b"[" * 10**5],
)
def test_malformed_json_passes_untouched(tail: bytes) -> None:
    """The engine sees what the client wrote and answers that."""
    content = json.dumps({"system": BILLING}).encode()[:-1] + tail
    assert KNOWN.removed_from(content).body is content


def test_removals_are_counted_by_pattern() -> None:
    """Each pattern's lines are counted, and a pattern without any is not named."""
    request = {"system": f"{BILLING}\nnow: 1\nYou", "messages": [_says("system", "now: 2"), USER]}
    lines = _lines("now: .*", "x-anthropic.*", "never")
    assert lines.removed_from(json.dumps(request).encode()).removed == {
        "now: .*": 2,
        "x-anthropic.*": 1,
    }


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("now=.*", "now=1"),
        ("nows?: 1", "now: 1"),
        ("nows*: 1", "now: 1"),
        ("nows{0,1}: 1", "now: 1"),
        ("then|now", "now"),
        ("(?i)NOW", "now"),
        ("(?:then|now)", "now"),
        (r"\w+: now", "time: now"),
        ('"now"', '"now"'),
        (r"the/now\\", "the/now\\"),
        ("jetzt für immer", "jetzt für immer"),
        ("[^x]*", "now"),
        ("now: 1;", "now: 1;\r"),
        ("now.*", "now\u2028\x0b\x85and ever"),
    ],
)
def test_any_pattern_finds_its_line(pattern: str, line: str) -> None:
    """The test on raw bytes, which comes first, holds no pattern from its line."""
    assert _without({"system": f"xx\n{line}\nxx"}, _lines(pattern)) == {"system": "xx\nxx"}


def test_without_patterns_nothing_is_removed() -> None:
    """An empty list turns the removal off."""
    content = json.dumps({"system": BILLING}).encode()
    assert _lines().removed_from(content).body is content


JsonText = str
Pair = tuple[JsonText, JsonText]
"""The same JSON without and with billing lines."""

LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1)
STRINGS = st.builds(json.dumps, LINES | st.just(BILLING), ensure_ascii=st.booleans())
NUMBERS = st.sampled_from(["1.0", "1e5", "-0", "0.10", "1E-7", "9007199254740993", "1" * 40])


def _array(items: Iterable[JsonText]) -> JsonText:
    return f"[ {' , '.join(items)} ]"


def _object(members: Iterable[tuple[str, JsonText]]) -> JsonText:
    return "{ " + ", ".join(f"{json.dumps(key)}: {value}" for key, value in members) + "}"


ANYTHING = st.recursive(
    NUMBERS | STRINGS | st.sampled_from(["null", "true"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(_array)
        | st.dictionaries(LINES, inner, max_size=3).map(lambda members: _object(members.items()))
    ),
    max_leaves=5,
)


@st.composite
def _system_texts(draw: st.DrawFn) -> Pair:
    ascii_only = draw(st.booleans())
    clean = draw(st.lists(LINES, min_size=1, max_size=4))
    dirty = list(clean)
    for place in draw(st.lists(st.integers(0, len(clean)), max_size=2)):
        dirty.insert(place, BILLING)
    text, dirty_text = (json.dumps("\n".join(x), ensure_ascii=ascii_only) for x in (clean, dirty))
    return text, dirty_text


def _around(pairs: st.SearchStrategy[Pair], key: str, *fixed: tuple[str, JsonText]) -> Any:
    """Objects that have a pair's text under a key, between other members."""

    def build(pair: Pair, before: JsonText, after: JsonText) -> Pair:
        first, last = ("before", before), ("after", after)
        clean, dirty = (_object([first, *fixed, (key, text), last]) for text in pair)
        return clean, dirty

    return st.builds(build, pairs, ANYTHING, ANYTHING)


@st.composite
def _lists(draw: st.DrawFn, pairs: st.SearchStrategy[Pair], only_billing: JsonText) -> Pair:
    """Lists of items that stay, and before them perhaps one that goes."""
    items = draw(st.lists(pairs, min_size=1, max_size=3))
    goes = [only_billing] if draw(st.booleans()) else []
    return _array(clean for clean, _ in items), _array([*goes, *(dirty for _, dirty in items)])


BLOCKS = _around(_system_texts(), "text", ("type", '"text"'))
CONTENTS = _system_texts() | _lists(BLOCKS, json.dumps(_block(BILLING)))
SAME = ANYTHING.map(lambda text: (text, text))
MESSAGES = st.one_of(
    _around(CONTENTS, "content", ("role", '"system"')),
    _around(CONTENTS, "content", ("role", '"developer"')),
    _around(SAME, "content", ("role", '"user"')),
)
CONVERSATIONS = _lists(MESSAGES, json.dumps(_says("system", BILLING)))
FIELDS = {
    "system": CONTENTS,
    "instructions": CONTENTS,
    "messages": CONVERSATIONS,
    "input": CONVERSATIONS | STRINGS.map(lambda text: (text, text)),
    "prompt": SAME,
    "tools": SAME,
}


@st.composite
def _requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    names = draw(st.lists(st.sampled_from(list(FIELDS)), unique=True))
    pairs = {name: draw(FIELDS[name]) for name in names}
    clean, dirty = (_object((n, pair[i]) for n, pair in pairs.items()).encode() for i in (0, 1))
    return clean, dirty


def _parsed(body: bytes) -> Any:
    """Parse with nothing lost: members in their order, numbers as they are spelled."""

    def number(spelling: str) -> tuple[str, str]:
        return "number", spelling

    return json.loads(body, parse_int=number, parse_float=number, object_pairs_hook=list)


@given(_requests())
def test_nothing_else_changes(request: tuple[bytes, bytes]) -> None:
    """Without the lines a request is what it would have been had they never been there."""
    clean, dirty = request
    canonical = KNOWN.removed_from(dirty)
    assert _parsed(canonical.body) == _parsed(clean)
    lines = sum(canonical.removed.values())
    assert lines == dirty.count(BILLING.encode()) - clean.count(BILLING.encode())
    assert (canonical.body is dirty) == (lines == 0)


@given(_requests())
def test_removing_again_removes_nothing(request: tuple[bytes, bytes]) -> None:
    """A request that had its lines removed is left alone from then on."""
    once = KNOWN.removed_from(request[1]).body
    assert KNOWN.removed_from(once).body is once

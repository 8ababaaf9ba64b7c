"""What is noted while a prompt is rendered."""

from typing import Any

from policies.turn import Message, Turn
from serve_app.render_notes import RenderNotes, notes, taking_notes

READ = {"type": "function", "function": {"name": "read", "arguments": {"path": "a.py"}}}


def _message(message: dict[str, Any]) -> Message:
    turn = RenderNotes(conversation=[message]).turn(1)
    assert turn is not None
    return turn.messages[0]


def test_a_message_is_its_role_its_text_and_its_reasoning() -> None:
    """Text is the same whole or in parts; what a message lacks is the same as what is empty."""
    whole = {"role": "user", "content": "one\ntwo"}
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert _message(whole) == Message.of("user", "one\ntwo")
    assert _message({"role": "user", "content": parts, "tool_calls": None}) == _message(whole)
    assert _message({"role": "user", "content": None}) == Message.of("user", "")
    for name in ("reasoning", "reasoning_content"):
        assert _message(whole | {name: "hm"}) == Message.of("user", "one\ntwo", "hm")


def test_calls_belong_to_the_text() -> None:
    """A message that calls a tool otherwise says something else; so does a part without text."""
    calling = {"role": "assistant", "content": "", "tool_calls": [READ]}
    other = READ | {"function": {"name": "read", "arguments": {"path": "b.py"}}}
    messages = [calling, calling | {"tool_calls": [other]}, calling | {"tool_calls": []}]
    messages.append(calling | {"tool_calls": [], "content": [{"type": "refusal"}]})
    assert len({_message(message).text for message in messages}) == 4


def test_the_turn() -> None:
    """Tools and conversation make it; without a chat template there is none."""
    conversation = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]
    said = [("system", "be brief", None), ("user", "go", None)]
    assert RenderNotes(None, [READ], conversation).turn(7) == Turn.of([READ], said, 7)
    assert RenderNotes().turn(7) is None


def test_notes_are_taken_where_somebody_wants_them() -> None:
    """Nothing is noted outside, and each context has notes of its own."""
    assert notes() is None
    with taking_notes() as outer:
        assert notes() is outer
        with taking_notes() as inner:
            assert notes() is inner
        assert notes() is outer
    assert notes() is None

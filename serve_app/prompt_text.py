"""The prompt of a request as text, for routers that compare characters."""

from typing import Any

import msgspec

from serve_app.session_id import NO_JSON


class _Body(msgspec.Struct):
    messages: Any = None
    prompt: Any = None
    input: Any = None
    """The Responses API's messages."""


def prompt_of(body: bytes) -> Any:
    """Return the messages or the prompt, token ids as words; None where there is neither."""
    try:
        fields = msgspec.json.decode(body, type=_Body)
    except NO_JSON:
        return None
    prompt = fields.messages or fields.prompt or fields.input
    if isinstance(prompt, list) and all(isinstance(one, int) for one in prompt):
        return " ".join(map(str, prompt))
    return prompt

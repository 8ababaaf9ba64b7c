"""What routers that compare characters are given."""

import json
from typing import Any

import pytest

from serve_app.prompt_text import prompt_of


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, [{"role": "user", "content": "hi"}]),
        ({"prompt": "hi"}, "hi"),
        ({"prompt": [1, 22, 3]}, "1 22 3"),
        ({"prompt": ["one", "two"]}, ["one", "two"]),
        ({"input": "hi"}, "hi"),
        ({}, None),
    ],
)
def test_the_prompt_of_each_api(body: dict[str, Any], prompt: Any) -> None:
    """Token ids become words, so that common beginnings stay common."""
    assert prompt_of(json.dumps(body).encode()) == prompt


@pytest.mark.parametrize("body", [b"", b"\xff", b"[1]", b"1", b"[" * 100_000])
def test_what_has_no_prompt(body: bytes) -> None:
    """The engine answers it."""
    assert prompt_of(body) is None

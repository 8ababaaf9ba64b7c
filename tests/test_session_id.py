"""Where coding agents put their session id."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import SessionId
from serve_app.http_message import Headers
from serve_app.session_id import ENGINE_HEADER, find_session_id, with_session_id

UUID = "6f1c1f0e-0d0c-4d0b-9c3f-0a1b2c3d4e5f"


def _body(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    ).encode()


@pytest.mark.parametrize(
    "header",
    [
        b"x-session-id",
        b"x-claude-code-session-id",
        b"session-id",
        b"session_id",
        b"x-session-affinity",
    ],
)
def test_known_headers(header: bytes) -> None:
    """Each agent's header names its session."""
    assert find_session_id(((b"accept", b"*/*"), (header, UUID.encode())), b"") == UUID


@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": UUID},
        {"prompt_cache_key": UUID},
        {"metadata": {"user_id": f"user_0a1b_account__session_{UUID}"}},
        {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": UUID})}},
        {"vllm_xargs": {"session_id": UUID}},
    ],
)
def test_known_body_fields(fields: dict[str, Any]) -> None:
    """Each agent's body field names its session where no header does."""
    assert find_session_id((), _body(**fields)) == UUID


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{bad",
        b"[1]",
        b"null",
        b"\xff\xfe",
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"[" * 10**5,
        _body(),
        _body(session_id=5, prompt_cache_key=None, metadata="x", vllm_xargs=[]),
        _body(session_id=""),
        _body(metadata={"user_id": 7}),
        _body(metadata={"user_id": "someone"}),
        _body(metadata={"user_id": '{"session_id": 3}'}),
        _body(metadata={"user_id": '{"a": ' + "[" * 10**5}),
    ],
)
def test_no_id(body: bytes) -> None:
    """A body without an id, or one that is not what it should be, names no session."""
    assert find_session_id((), body) is None


def test_a_field_of_the_wrong_type_hides_no_other() -> None:
    """A useless session_id does not keep prompt_cache_key from being found."""
    assert find_session_id((), _body(session_id=5, prompt_cache_key="k")) == "k"


def test_order() -> None:
    """Configured headers come first, then known ones, then the body."""
    headers: Headers = ((b"x-session-id", b"known"), (b"x-team-run", b"ours"))
    assert find_session_id(headers, _body(session_id="body"), ["X-Team-Run"]) == "ours"
    assert find_session_id(headers, _body(session_id="body")) == "known"
    assert find_session_id((), _body(session_id="body"), ["X-Team-Run"]) == "body"


@given(st.binary(min_size=1), st.binary(min_size=1))
def test_ids_are_equal_or_different(one: bytes, other: bytes) -> None:
    """Two header values are one session exactly when their bytes are equal."""
    found = [find_session_id(((b"x-session-id", value),), b"") for value in (one, other)]
    assert (found[0] == found[1]) == (one == other)


@given(st.text(min_size=1), st.lists(st.tuples(st.just(b"x-a"), st.binary())))
def test_the_engine_is_told_once(session_id: str, others: list[tuple[bytes, bytes]]) -> None:
    """The engine's header appears once, whatever was there; the other headers stay."""
    session_id = session_id.encode(errors="ignore").decode() or "x"
    headers = (*others, (ENGINE_HEADER, b"old"))
    told = with_session_id(headers, SessionId(session_id))
    assert [pair for pair in told if pair[0] != ENGINE_HEADER] == others
    assert [value for name, value in told if name == ENGINE_HEADER] == [session_id.encode()]


def test_very_long_ids_are_still_equal_or_different() -> None:
    """They are kept as hashes, wherever they come from."""
    long = ["x" * 5000 + end for end in "ab"]
    bodies = [json.dumps({"session_id": one}).encode() for one in long]
    found = [find_session_id((), body) for body in bodies]
    assert found[0] == find_session_id(((b"x-session-id", long[0].encode()),), b"")
    assert found[0] != found[1]
    assert all(one and len(one) < 200 for one in found)

"""Token ids in a request's body."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from serve_app.carried_ids import can_carry, with_ids

IDS = np.array([3, 0, 70_000], np.uint32)
CARRIED = {"kv_transfer_params": {"prompt_token_ids": IDS.tolist()}}


class Plain(BaseModel):
    """A request with no field that matters."""


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
spaces = st.text(" \t\r\n", max_size=3)


@settings(deadline=None)
@given(st.dictionaries(st.text(), values), spaces, spaces, st.none() | st.integers(0, 2))
def test_all_else_stays(
    fields: dict[str, Any], before: str, after: str, indent: int | None
) -> None:
    """The ids are one more field, whatever else is there and however it is laid out."""
    body = f"{before}{json.dumps(fields, indent=indent)}{after}".encode()
    assert json.loads(with_ids(body, IDS)) == fields | CARRIED


@pytest.mark.parametrize("body", [b'{"a":1,"a":1.0e0}', b'{ "a" : "}" }\n', b'{"a":{}}', b"{}"])
def test_not_a_byte_changes_before_them(body: bytes) -> None:
    """Repeated keys, the spelling of numbers and white space are the client's."""
    start = body.rstrip().removesuffix(b"}").rstrip()
    assert with_ids(body, IDS).startswith(start)
    pairs = json.loads(with_ids(body, IDS), object_pairs_hook=list)
    assert pairs[:-1] == json.loads(body, object_pairs_hook=list)
    assert pairs[-1] == ("kv_transfer_params", [("prompt_token_ids", IDS.tolist())])


@pytest.mark.parametrize(
    ("path", "harmony", "can"),
    [
        ("/v1/chat/completions", True, True),
        ("/v1/messages", True, True),
        ("/v1/responses", True, False),
        ("/v1/responses", False, True),
        ("/v1/completions", False, False),
    ],
)
def test_where_vllm_looks_for_them(path: str, harmony: bool, can: bool) -> None:
    """Elsewhere it would hand them on to the engine as one more parameter."""
    assert can_carry(path, b"{}", Plain(), harmony) == can

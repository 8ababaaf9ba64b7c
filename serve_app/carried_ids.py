"""Spares the engine the second tokenising: a request carries its prompt's token ids along.

vLLM takes them from `kv_transfer_params`, meant for an engine that decodes what another one has
prefilled. It then skips chat template and tokenizer and does all else as before. /v1/completions
does not look for them there, nor does /v1/responses for models that speak Harmony.
"""

import json
from typing import Any

import msgspec

from serve_app.segment_encoder import Ids

FIELD = "kv_transfer_params"

PATHS = frozenset(("/v1/chat/completions", "/v1/messages", "/v1/responses"))

SHOW_PROMPT = ("echo", "return_prompt_text", "enable_response_messages")
"""Fields that ask for the prompt in the answer: then the engine has to render it."""

WHITE_SPACE = b" \t\n\r"


def can_carry(path: str, body: bytes, request: Any, harmony: bool) -> bool:
    """Tell whether ids can be put into a request without a difference to its client.

    `request` is the body as vLLM has parsed it, `harmony` says how its model speaks.
    """
    return (
        path in PATHS
        and not (harmony and path == "/v1/responses")
        and FIELD not in request.model_fields_set
        and not any(getattr(request, field, None) for field in SHOW_PROMPT)
        and json.detect_encoding(body) in ("utf-8", "utf-8-sig")
    )


def with_ids(body: bytes, ids: Ids) -> bytes:
    """Return a JSON object with ids in it, and every other byte as it was but white space."""
    start = body.rstrip(WHITE_SPACE).removesuffix(b"}").rstrip(WHITE_SPACE)
    comma = b"" if start.endswith(b"{") else b","
    encoded = msgspec.json.encode(ids.tolist())
    return b'%s%s"%s":{"prompt_token_ids":%s}}' % (start, comma, FIELD.encode(), encoded)

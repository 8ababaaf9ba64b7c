"""Ray's prefix-affinity router, given the text of our requests; it needs pyarrow."""

from typing import Any

import msgspec
from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import (
    PrefixCacheAffinityRouter,
)
from ray.serve.request_router import PendingRequest

from serve_app.http_message import HttpRequest


class _Body(msgspec.Struct):
    messages: Any = None
    prompt: Any = None
    input: Any = None
    """The Responses API's messages."""


class PrefixAffinityRouter(PrefixCacheAffinityRouter):
    """The same router: it looks for `messages` or `prompt` in a call's arguments."""

    def _extract_text_from_request(self, pending_request: PendingRequest) -> str:
        request = next(arg for arg in pending_request.args if isinstance(arg, HttpRequest))
        try:
            body = msgspec.json.decode(request.body, type=_Body)
        except (msgspec.MsgspecError, RecursionError):
            return " "  # it divides by the length
        prompt = body.messages or body.prompt or body.input
        if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
            prompt = " ".join(map(str, prompt))
        text: str = self._normalize_prompt_to_string(prompt)
        return text or " "

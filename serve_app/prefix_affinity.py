"""Ray's prefix-affinity router, given the text of our requests."""

from ray.llm._internal.serve.routing_policies.prefix_aware.prefix_aware_router import (
    PrefixCacheAffinityRouter,
)
from ray.serve.request_router import PendingRequest

from serve_app.http_message import HttpRequest
from serve_app.prompt_text import prompt_of

NO_TEXT = " "
"""The router divides by the length of a text."""


class PrefixAffinityRouter(PrefixCacheAffinityRouter):
    """The same router: it looks for `messages` or `prompt` among a call's arguments.

    Serve pickles this module by value, so that a class of its own here would not be itself there.
    """

    def _extract_text_from_request(self, pending_request: PendingRequest) -> str:
        requests = (arg for arg in pending_request.args if isinstance(arg, HttpRequest))
        request = next(requests, None)
        text: str = self._normalize_prompt_to_string(request and prompt_of(request.body))
        return text or NO_TEXT

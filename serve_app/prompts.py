"""What the gateway learns of a request's prompt before it decides where that goes."""

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from policies.block_hash import root_hash
from policies.prefix_break import PrefixBreak, prefix_break
from policies.types import SessionId
from serve_app.carried_ids import with_ids
from serve_app.http_message import HttpRequest
from serve_app.prompt_hashes import NO_HASHES, Hashes, PromptHashes
from serve_app.render import NotRenderable, Prompt

WORKERS = 4
"""Prompts read at a time; encoding, the long part of a cold one, leaves the others the GIL."""

BYTES_PER_TOKEN = 4
"""Of a request's body, roughly."""

MOST_ESTIMATED_TOKENS = 4096
"""A long body that cannot be rendered mostly holds images, or something that vLLM refuses."""


class Renderer(Protocol):
    """What renders requests; PromptRenderer is the real one. Any thread may call it."""

    def render(self, path: str, body: bytes, session: SessionId | None) -> Prompt | NotRenderable:
        """Return a request's prompt, as PromptRenderer.render does."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadPrompt:
    """A request to send on, and what its prompt is.

    `hashes` are of its full blocks. `prefix_break` says why it does not begin with an earlier
    prompt of its session, None if it does. `not_rendered` says why there are no hashes and
    `prompt_tokens` is an estimate, without a word of the prompt.
    """

    request: HttpRequest
    hashes: Hashes
    prompt_tokens: int
    prefix_break: PrefixBreak | None = None
    not_rendered: str | None = None


class Prompts:
    """Reads prompts on threads of its own, and remembers each session's last ones."""

    def __init__(self, renderer: Renderer, model: str, served_names: Collection[str]) -> None:
        """Take the model that all engines have; any name but `served_names` is an adapter's."""
        self._renderer = renderer
        self._model = model
        self._served_names = frozenset(served_names)
        self._pool = ThreadPoolExecutor(WORKERS, "prompts")

    async def read(
        self, request: HttpRequest, session: SessionId | None, block_size: int | None
    ) -> ReadPrompt:
        """Read a request's prompt; never raise for what is in the request.

        Without a block size, as nobody knows the engines' yet, there are no hashes.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._read, request, session, block_size)

    def close(self) -> None:
        """End the threads, once they have done what they are at."""
        self._pool.shutdown()

    def _read(
        self, request: HttpRequest, session: SessionId | None, block_size: int | None
    ) -> ReadPrompt:
        prompt = self._renderer.render(request.path, request.body, session)
        if isinstance(prompt, NotRenderable):
            tokens = min(len(request.body) // BYTES_PER_TOKEN, MOST_ESTIMATED_TOKENS)
            return ReadPrompt(request, NO_HASHES, tokens, not_rendered=prompt.reason)
        hashes = NO_HASHES if block_size is None else self._hashes(prompt, block_size)
        if prompt.can_carry_ids and len(prompt.ids):
            request = request.with_body(with_ids(request.body, prompt.ids))
        return ReadPrompt(request, hashes, len(prompt.ids), _prefix_break(prompt))

    def _hashes(self, prompt: Prompt, block_size: int) -> Hashes:
        adapter = "" if prompt.model in self._served_names else prompt.model or ""
        tenant = prompt.cache_salt or ""
        root = root_hash(self._model, block_size, lora=adapter, tenant=tenant)
        known = (prompt.overlap.earlier.hashes, prompt.overlap.tokens) if prompt.overlap else ()
        hashes = PromptHashes.of(root, block_size, prompt.ids, *known)
        prompt.remembered.hashes = hashes
        return hashes.blocks


def _prefix_break(prompt: Prompt) -> PrefixBreak | None:
    """Tell why a prompt broke with the most alike of its session, or None if it did not."""
    overlap, turn = prompt.overlap, prompt.remembered.turn
    if overlap is None or overlap.is_continued or turn is None or overlap.earlier.turn is None:
        return None
    return prefix_break(overlap.earlier.turn, turn, overlap.tokens)

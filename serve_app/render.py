"""Request -> the token ids that the engine will compute, in this process and without an engine.

vLLM's own code does it: it parses the request, converts it, applies the chat template and the
tools. Only encoding is ours, since a turn repeats most of what was encoded before.

Importing this module imports vLLM, which takes many seconds.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from pydantic import BaseModel
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.inputs import EngineInput

from policies.types import SessionId
from serve_app import text_renderer
from serve_app.anthropic_messages import AnthropicMessages
from serve_app.last_prompts import LastPrompts, Overlap, PromptNumber
from serve_app.segment_encoder import Ids

WORKERS = 4
"""Requests rendered at a time; encoding, the long part of a cold one, leaves the others the GIL."""

SEGMENTS_BYTES = 512 * 2**20
"""Memory for segments: about 500 sessions of 100,000 tokens that share nothing."""

MAX_SESSIONS = 256
MAX_LINEAGES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a request's prompt is to the engine.

    `overlap` says which of the session's earlier prompts it repeats most of, and how many leading
    tokens, so that only what follows is left to hash. None if nothing alike is remembered.
    """

    ids: Ids
    number: PromptNumber
    overlap: Overlap | None


@dataclass(frozen=True, slots=True)
class NotRenderable:
    """Why there are no ids, without a word of the prompt: the engine answers such a request."""

    reason: str


_Form = tuple[type[BaseModel], Callable[[Any], Coroutine[Any, Any, EngineInput]]]
"""What a path's body is parsed as, and what renders that."""


class _NoPrompt(Exception):
    """Why there are no ids."""


class PromptRenderer:
    """Renders requests for engines with the same arguments, on threads of its own."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Load tokenizer and templates; takes seconds.

        Raises:
            Exception: whatever vLLM raises if it cannot serve this model.
        """
        self._pool = ThreadPoolExecutor(WORKERS, "render")
        self._renderer = text_renderer.from_args(args)
        # It runs an event loop, and there may be one in this thread.
        self._anthropic = self._pool.submit(AnthropicMessages, self._renderer, args).result()
        self._last = LastPrompts(MAX_SESSIONS, MAX_LINEAGES)
        self._forms: dict[str, _Form] = {
            "/v1/chat/completions": (ChatCompletionRequest, self._chat),
            "/v1/completions": (CompletionRequest, self._completion),
            "/v1/messages": (AnthropicMessagesRequest, self._messages),
            "/v1/responses": (ResponsesRequest, self._responses),
        }
        self.in_segments = text_renderer.encode_in_segments(self._renderer.renderer, SEGMENTS_BYTES)

    async def render(
        self, path: str, body: bytes, session: SessionId | None
    ) -> Prompt | NotRenderable:
        """Return a request's prompt; never raise for what is in the request."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._render, path, body, session)

    def close(self) -> None:
        """End the threads, once they have done what they are at."""
        self._pool.shutdown()
        self._renderer.renderer.shutdown()

    def _render(self, path: str, body: bytes, session: SessionId | None) -> Prompt | NotRenderable:
        if path not in self._forms:
            return NotRenderable("another path")
        model, render = self._forms[path]
        try:
            with text_renderer.noting_segments() as turn:
                rendered = asyncio.run(render(model.model_validate(json.loads(body))))
            ids = np.asarray(_ids(rendered), np.uint32)
        except _NoPrompt as reason:
            return NotRenderable(str(reason))
        except Exception as error:  # what vLLM raises for bad requests has no common base
            return NotRenderable(type(error).__name__)
        number, overlap = self._last.add(session, turn.segments or (ids,))
        return Prompt(ids, number, overlap)

    async def _chat(self, request: ChatCompletionRequest) -> EngineInput:
        rendered = await self._renderer.render_chat(request)
        if isinstance(rendered, ErrorResponse):
            _refuse(rendered)
        _, (engine_input,) = rendered
        return engine_input

    async def _messages(self, request: AnthropicMessagesRequest) -> EngineInput:
        return await self._chat(self._anthropic.to_chat(request))

    async def _completion(self, request: CompletionRequest) -> EngineInput:
        rendered = await self._renderer.render_completion(request)
        if isinstance(rendered, ErrorResponse):
            _refuse(rendered)
        if len(rendered) != 1:
            raise _NoPrompt("several prompts")
        return rendered[0]

    async def _responses(self, request: ResponsesRequest) -> EngineInput:
        if request.previous_response_id is not None:
            raise _NoPrompt("the previous response is in a replica")
        rendered = await self._renderer.render_responses(request)
        if isinstance(rendered, ErrorResponse):
            _refuse(rendered)
        return rendered.engine_input


def _ids(rendered: EngineInput) -> Any:
    if rendered["type"] != "token":
        raise _NoPrompt(rendered["type"])
    return rendered["prompt_token_ids"]


def _refuse(response: ErrorResponse) -> NoReturn:
    raise _NoPrompt(response.error.type)

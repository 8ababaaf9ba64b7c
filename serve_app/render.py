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
from serve_app import carried_ids, text_renderer
from serve_app.anthropic_messages import AnthropicMessages
from serve_app.last_prompts import LastPrompts, Overlap, RememberedPrompt
from serve_app.render_notes import taking_notes
from serve_app.segment_encoder import Ids

SEGMENTS_BYTES = 512 * 2**20
"""Memory for segments: about 500 sessions of 100,000 tokens that share nothing."""

MAX_SESSIONS = 256
MAX_LINEAGES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a request's prompt is to the engine.

    `overlap` is with the most alike of its session's earlier ones, None if there are none. Model
    and cache salt are the request's own. `can_carry_ids` is what carried_ids.can_carry says.
    """

    ids: Ids
    remembered: RememberedPrompt
    overlap: Overlap | None
    model: str | None
    cache_salt: str | None
    can_carry_ids: bool


@dataclass(frozen=True, slots=True)
class NotRenderable:
    """Why there are no ids, without a word of the prompt: the engine answers such a request."""

    reason: str


_Form = tuple[type[BaseModel], Callable[[Any], Coroutine[Any, Any, EngineInput]]]
"""What a path's body is parsed as, and what renders that."""


class _NoPrompt(Exception):
    """Why there are no ids."""


class PromptRenderer:
    """Renders requests for engines with the same arguments. Any thread may call it."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Load tokenizer and templates; takes seconds.

        Raises:
            Exception: whatever vLLM raises if it cannot serve this model.
        """
        self._renderer = text_renderer.from_args(args)
        with ThreadPoolExecutor(1) as pool:
            # It runs an event loop, and there may be one in this thread.
            self._anthropic = pool.submit(AnthropicMessages, self._renderer, args).result()
        self._last = LastPrompts(MAX_SESSIONS, MAX_LINEAGES)
        self._forms: dict[str, _Form] = {
            "/v1/chat/completions": (ChatCompletionRequest, self._chat),
            "/v1/completions": (CompletionRequest, self._completion),
            "/v1/messages": (AnthropicMessagesRequest, self._messages),
            "/v1/responses": (ResponsesRequest, self._responses),
        }
        self.in_segments = text_renderer.encode_in_segments(self._renderer.renderer, SEGMENTS_BYTES)

    def render(self, path: str, body: bytes, session: SessionId | None) -> Prompt | NotRenderable:
        """Return a request's prompt; never raise for what is in the request.

        Takes up to seconds, in a thread without an event loop.
        """
        if path not in self._forms:
            return NotRenderable("another path")
        model, render = self._forms[path]
        try:
            request: Any = model.model_validate(json.loads(body))
            can_carry_ids = carried_ids.can_carry(path, body, request, self._renderer.use_harmony)
            with taking_notes() as notes:
                rendered = asyncio.run(render(request))
            ids = np.asarray(_ids(rendered), np.uint32)
            turn = notes.turn(len(ids))
        except _NoPrompt as reason:
            return NotRenderable(str(reason))
        except Exception as error:  # what vLLM raises for bad requests has no common base
            return NotRenderable(type(error).__name__)
        remembered = RememberedPrompt(notes.segments or (ids,), turn)
        overlap = self._last.add(session, remembered)
        return Prompt(ids, remembered, overlap, request.model, request.cache_salt, can_carry_ids)

    def close(self) -> None:
        """Let go of the tokenizer's threads."""
        self._renderer.renderer.shutdown()

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

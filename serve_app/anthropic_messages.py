"""Requests of Anthropic's API -> chat requests, by vLLM's own conversion."""

import argparse
import asyncio

from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.online_renderer import OnlineRenderer


class AnthropicMessages(AnthropicServingMessages):
    """The part of vLLM's handler that converts; it has no engine to do more."""

    def __init__(self, renderer: OnlineRenderer, args: argparse.Namespace) -> None:
        """Find out what the chat template does with system messages and without thinking."""
        self.model_config = renderer.model_config
        self.online_renderer = renderer
        self._merge_inline_system = self._should_merge_inline_system(renderer)
        effort = args.anthropic_disabled_thinking_effort
        self._disabled_thinking_effort = None if effort == "auto" else effort
        self._effort = asyncio.run(self._get_disabled_thinking_effort())

    def to_chat(self, request: AnthropicMessagesRequest) -> ChatCompletionRequest:
        """Return the chat request that vLLM makes of it."""
        return self.to_chat_completion_request(
            request,
            merge_inline_system=self._merge_inline_system,
            disabled_thinking_effort=self._effort,
        )

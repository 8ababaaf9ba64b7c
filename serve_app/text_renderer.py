"""vLLM's own renderer without an engine, for text alone, with a tokenizer that remembers.

Importing this module imports vLLM, which takes many seconds.
"""

import argparse
from copy import deepcopy
from typing import Any, TypeGuard

import numpy as np
from tokenizers import Tokenizer
from transformers import TokenizersBackend
from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import resolve_default_chat_template_kwargs
from vllm.inputs import EngineInput, TextPrompt, TokensPrompt
from vllm.renderers import BaseRenderer, TokenizeParams, renderer_from_config
from vllm.renderers.chat_utils import (
    ConversationMessage,
    has_non_text_content,
    load_chat_template,
)
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.tokenizers.hf import get_cached_tokenizer

from serve_app.engine_args import import_parser_plugins
from serve_app.render_notes import notes
from serve_app.segment_encoder import SegmentEncoder, cuts


class NotText(Exception):
    """A request whose prompt is not text alone."""


class TextRenderer(OnlineRenderer):
    """vLLM's renderer that refuses what is not text before anything is fetched or decoded.

    It notes what it gives to the chat template.
    """

    async def preprocess_chat(
        self, request: Any, messages: list[Any], *args: Any, **kwargs: Any
    ) -> tuple[list[ConversationMessage], list[EngineInput]]:
        """Do as vLLM does.

        Raises:
            NotText: a message has an image, sound or embeddings in it.
        """
        if has_non_text_content(messages):
            raise NotText
        rendered = await super().preprocess_chat(request, messages, *args, **kwargs)
        if (noted := notes()) is not None:
            noted.tools, noted.conversation = kwargs.get("tool_dicts") or (), rendered[0]
        return rendered

    async def preprocess_completion(
        self, request: Any, prompt_input: Any, prompt_embeds: Any, **kwargs: Any
    ) -> list[EngineInput]:
        """Do as vLLM does.

        Raises:
            NotText: the prompt has embeddings in it.
        """
        if prompt_embeds is not None:
            raise NotText
        return await super().preprocess_completion(request, prompt_input, None, **kwargs)


def from_args(args: argparse.Namespace) -> TextRenderer:
    """Build the renderer that an engine with these arguments has, as vLLM's render server does."""
    import_parser_plugins(args)
    engine_args = AsyncEngineArgs.from_cli_args(args)
    model_config = engine_args.create_model_config()
    # Nothing is computed here, so it does not matter whether this machine could dequantise.
    model_config.quantization = None
    config = VllmConfig(
        model_config=model_config,
        structured_outputs_config=engine_args.create_structured_outputs_config(),
    )
    renderer = TextRenderer(
        model_config=model_config,
        renderer=renderer_from_config(config),
        request_logger=None,
        chat_template=load_chat_template(args.chat_template),
        chat_template_content_format=args.chat_template_content_format,
        trust_request_chat_template=args.trust_request_chat_template,
        trust_request_mm_kwargs=args.trust_request_mm_kwargs,
        enable_auto_tools=args.enable_auto_tool_choice,
        exclude_tools_when_tool_choice_none=args.exclude_tools_when_tool_choice_none,
        tool_parser=args.tool_call_parser,
        tool_strict_level=args.tool_strict_level,
        reasoning_parser=config.structured_outputs_config.reasoning_parser,
        default_chat_template_kwargs=resolve_default_chat_template_kwargs(args),
    )
    renderer.warmup()
    return renderer


def encode_in_segments(renderer: BaseRenderer[Any], max_bytes: int) -> bool:
    """Let a renderer remember the segments it has encoded, up to `max_bytes`.

    Return whether its tokenizer allows that: where joined segments might differ from the whole,
    the renderer stays as it is.
    """
    tokenizer = renderer.tokenizer
    if not _encodes_as_its_backend(tokenizer):
        return False
    # A copy, since vLLM sets the original's truncation with each call.
    backend: Tokenizer = deepcopy(tokenizer.backend_tokenizer)
    backend.no_truncation()
    backend.no_padding()
    cut = cuts(backend)
    if cut is None:
        return False
    encoder = SegmentEncoder(backend, cut, max_bytes)
    adds_tokens = backend.num_special_tokens_to_add(is_pair=False) > 0
    whole = renderer._tokenize_prompt_async

    async def tokenize(prompt: TextPrompt, params: TokenizeParams) -> TokensPrompt:
        noted = notes()
        if (
            noted is None  # nobody can use arrays, such as vLLM itself when it tries a template
            or params.truncate_prompt_tokens is not None
            or params.return_token_offsets
            or (params.add_special_tokens and adds_tokens)
        ):
            return await whole(prompt, params)
        noted.segments = encoder.encode(prompt["prompt"])
        ids: Any = np.concatenate([np.empty(0, np.uint32), *noted.segments])
        return TokensPrompt(prompt_token_ids=ids, **prompt)  # type: ignore[typeddict-item]  # as vLLM

    renderer._tokenize_prompt_async = tokenize
    return True


def _encodes_as_its_backend(tokenizer: object) -> TypeGuard[TokenizersBackend]:
    """Tell whether a tokenizer is one of the tokenizers library, with nothing done before it.

    A few models' classes, such as Code Llama's, take texts apart themselves. vLLM's own classes
    on top only borrow and cache.
    """
    if not isinstance(tokenizer, TokenizersBackend) or tokenizer.split_special_tokens:
        return False
    kinds = [kind for kind in type(tokenizer).__mro__ if issubclass(kind, TokenizersBackend)]
    return not any(
        {"__call__", "_encode_plus"} & vars(kind).keys()
        for kind in kinds
        if kind is not TokenizersBackend and kind.__module__ != get_cached_tokenizer.__module__
    )

"""Rendering without an engine, against vLLM's own render server, which renders from scratch."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from shutil import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, processors
from transformers import AutoTokenizer
from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.render.app_state import init_render_app_state

from policies.types import SessionId
from serve_app import asgi_client, engine_args
from serve_app.carried_ids import with_ids
from serve_app.http_message import HttpRequest, ResponseStart
from serve_app.last_prompts import RememberedPrompt
from serve_app.render import NotRenderable, Prompt, PromptRenderer
from serve_app.segment_encoder import Ids, SegmentEncoder
from serve_app.text_renderer import encode_in_segments
from tests import chat_templates
from tests.conversations import Body, Conversation, sessions, texts

pytestmark = pytest.mark.slow

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
FORMS = {
    CHAT: Conversation.chat,
    RESPONSES: Conversation.responses,
    MESSAGES: Conversation.messages,
}
session_numbers = count()


class RenderServer:
    """vLLM's own server that renders and does nothing else."""

    def __init__(self, parsed: Any) -> None:
        self._app = build_app(parsed, ("render",))
        config = VllmConfig(
            model_config=AsyncEngineArgs.from_cli_args(parsed).create_model_config()
        )
        asyncio.run(init_render_app_state(config, self._app.state, parsed))

    def ids(self, path: str, body: bytes) -> list[int] | None:
        """Return what vLLM renders, or None if it refuses."""
        return asyncio.run(self._ids(path + "/render", body))

    async def _ids(self, path: str, body: bytes) -> list[int] | None:
        headers = ((b"content-type", b"application/json"),)
        stream = asgi_client.call(self._app, HttpRequest("POST", path, b"", headers, body))
        start = await anext(stream)
        content = b"".join([piece async for piece in stream if isinstance(piece, bytes)])
        if not isinstance(start, ResponseStart) or start.status != 200:
            return None
        rendered = json.loads(content)
        [one] = rendered if isinstance(rendered, list) else [rendered]
        ids: list[int] = one["token_ids"]
        return ids


@dataclass
class Model:
    """A model with its chat template, rendered here and by vLLM."""

    ours: PromptRenderer
    vllms: RenderServer

    def prompt(self, path: str, body: Body, session: SessionId | None = None) -> Prompt:
        """Render a request that can be rendered."""
        rendered = self.render(path, body, session)
        assert isinstance(rendered, Prompt)
        return rendered

    def render(
        self, path: str, body: Any, session: SessionId | None = None
    ) -> Prompt | NotRenderable:
        """Render a request and compare; what vLLM refuses has no ids.

        Where ids can be put into the request, vLLM renders it to those.
        """
        content = json.dumps({"model": "m"} | body).encode()
        rendered = self.ours.render(path, content, session)
        expected = self.vllms.ids(path, content)
        if isinstance(rendered, NotRenderable):
            assert expected is None
        else:
            assert rendered.ids.dtype == np.uint32
            assert rendered.ids.tolist() == expected
            if rendered.can_carry_ids:
                other = rendered.ids[::-1]
                assert self.vllms.ids(path, with_ids(content, other)) == other.tolist()
        return rendered


def _llama3(smollm2: Path, directory: Path) -> Path:
    """Make a tokenizer like Llama 3's, with normalisation on top; no weights."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    names = ("begin_of_text", "start_header_id", "end_header_id", "eot_id")
    tokenizer.add_tokens(
        [AddedToken(f"<|{name}|>", special=True, normalized=False) for name in names]
    )
    tokenizer.bos_token = "<|begin_of_text|>"
    backend = tokenizer.backend_tokenizer
    backend.normalizer = normalizers.NFC()
    backend.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A",
        special_tokens=[("<|begin_of_text|>", tokenizer.bos_token_id)],
    )
    tokenizer.save_pretrained(directory)
    copy(smollm2 / "config.json", directory)
    return directory


def _beside(smollm2: Path, directory: Path) -> Path:
    """Make a tokenizer that cannot be cut, as a token of it takes the space beside it."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    tokenizer.add_tokens([AddedToken("<|eot_id|>", special=True, normalized=False, rstrip=True)])
    tokenizer.save_pretrained(directory)
    copy(smollm2 / "config.json", directory)
    return directory


async def _renderer(settings: dict[str, Any]) -> PromptRenderer:
    """Build one as Serve does, which has an event loop running."""
    return PromptRenderer(engine_args.parse(settings))


@pytest.fixture(scope="module", params=["smollm2", "chatml", "llama3", "beside"])
def model(
    request: pytest.FixtureRequest, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    """Four pairs of a tokenizer and a chat template."""
    directory = tmp_path_factory.mktemp(request.param)
    engine: dict[str, Any] = {"model": str(smollm2), "served_model_name": "m"}
    engine |= {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"}
    if request.param == "llama3":
        engine["model"] = str(_llama3(smollm2, directory))
    if request.param == "beside":
        engine["model"] = str(_beside(smollm2, directory))
    if request.param in ("chatml", "llama3"):
        template = directory / "template.jinja"
        template.write_text(getattr(chat_templates, request.param.upper()))
        engine["chat_template"] = str(template)
    ours = asyncio.run(_renderer(engine))
    assert ours.in_segments == (request.param != "beside")
    yield Model(ours, RenderServer(engine_args.parse(engine)))
    ours.close()


relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@relaxed
@given(turns=sessions(), path=st.sampled_from(sorted(FORMS)))
def test_a_session_is_rendered_as_vllm_does(
    model: Model, turns: list[Conversation], path: str
) -> None:
    """Each turn's ids are vLLM's, whatever was rendered before, and its overlap is true."""
    session = SessionId(f"session-{next(session_numbers)}")
    earlier: dict[RememberedPrompt, Ids] = {}
    for turn in turns:
        rendered = model.render(path, FORMS[path](turn), session)
        if isinstance(rendered, NotRenderable):
            continue
        if earlier:
            assert rendered.overlap is not None
            tokens = rendered.overlap.tokens
            assert np.array_equal(rendered.ids[:tokens], earlier[rendered.overlap.earlier][:tokens])
        earlier[rendered.remembered] = rendered.ids


@relaxed
@given(parts=st.lists(texts, max_size=6), special=st.booleans())
def test_completions(model: Model, parts: list[str], special: bool) -> None:
    """Prompts of text, with and without the tokens that the tokenizer adds, and of tokens."""
    text = "".join(parts)
    rendered = model.render(COMPLETIONS, {"prompt": text, "add_special_tokens": special})
    if isinstance(rendered, Prompt):
        again = model.prompt(COMPLETIONS, {"prompt": rendered.ids.tolist()})
        assert np.array_equal(again.ids, rendered.ids)


def test_further_settings(model: Model) -> None:
    """What else in a request changes its prompt."""
    talk = Conversation("s", [("user", "hello"), ("assistant", "The answer is")])
    model.prompt(CHAT, talk.chat() | {"add_generation_prompt": False})
    model.prompt(
        CHAT, talk.chat() | {"add_generation_prompt": False, "continue_final_message": True}
    )
    model.prompt(CHAT, talk.chat() | {"add_special_tokens": True})
    model.prompt(CHAT, talk.chat() | {"truncate_prompt_tokens": 5})
    talk.tools.append("read")
    for choice in ("none", "auto", "required"):
        model.prompt(CHAT, talk.chat() | {"tool_choice": choice})
        model.prompt(RESPONSES, talk.responses() | {"tool_choice": choice})
    model.prompt(CHAT, talk.chat() | {"reasoning_effort": "high"})
    model.prompt(RESPONSES, {"input": "hello"})
    model.prompt(RESPONSES, talk.responses() | {"truncation": "auto"})
    model.prompt(MESSAGES, talk.messages() | {"system": "a string"})
    model.prompt(MESSAGES, talk.messages() | {"thinking": {"type": "adaptive"}})
    model.prompt(COMPLETIONS, {"prompt": "hello", "truncate_prompt_tokens": 1})
    forwarded = {"kv_transfer_params": {"prompt_token_ids": [3, 4, 5]}}
    assert model.prompt(CHAT, talk.chat() | forwarded).ids.tolist() == [3, 4, 5]


def test_system_messages_between_others(model: Model) -> None:
    """They stay where they are, or come first where a template takes them only there."""
    talk = Conversation("s", [("user", "hello"), ("system", "be brief"), ("user", "go on")])
    model.prompt(MESSAGES, talk.messages())


def test_a_truncated_prompt_overlaps_with_what_is_left_of_it(model: Model) -> None:
    """Whichever side is cut off, no more is said to be unchanged than is."""
    session = SessionId("truncated")
    talk = Conversation("s", [("user", "hello " * 50)])
    for side, tokens in (("right", 9), ("right", 8), ("left", 9)):
        body = talk.chat() | {"truncate_prompt_tokens": tokens, "truncation_side": side}
        rendered = model.prompt(CHAT, body, session)
        assert rendered.overlap is None or rendered.overlap.tokens <= tokens


def test_thinking_is_disabled_as_the_template_can(model: Model) -> None:
    """Where a template refuses to go without thinking, vLLM's engine asks it for little."""
    talk = Conversation("s", [("user", "hello")])
    body = {"model": "m"} | talk.messages() | {"thinking": {"type": "disabled"}}
    rendered = model.ours.render(MESSAGES, json.dumps(body).encode(), None)
    assert isinstance(rendered, Prompt)
    assert np.array_equal(
        rendered.ids, model.prompt(CHAT, talk.chat() | {"reasoning_effort": "low"}).ids
    )


def test_a_long_session_is_encoded_in_segments(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chats do go through the encoder that remembers, where they can; the last turn is new."""
    encoded: list[str] = []
    encode = SegmentEncoder.encode

    def noting(encoder: SegmentEncoder, text: str) -> tuple[Ids, ...]:
        encoded.append(text)
        return encode(encoder, text)

    monkeypatch.setattr(SegmentEncoder, "encode", noting)
    session = SessionId("long")
    talk = Conversation("s", [("user", "hello " * 500)])
    first = model.prompt(CHAT, talk.chat(), session)
    talk.said += [("assistant", "yes"), ("user", "go on")]
    second = model.prompt(CHAT, talk.chat(), session)
    assert len(encoded) == (2 if model.ours.in_segments else 0)
    assert second.overlap is not None
    assert second.overlap.earlier is first.remembered
    assert second.overlap.tokens >= len(first.ids) - 1


@pytest.mark.parametrize(
    ("own", "splits", "cuts"),
    [({}, False, True), ({}, True, False), ({"_encode_plus": None}, False, False)],
)
def test_tokenizers_that_do_more_than_their_backend(
    smollm2: Path, own: dict[str, Any], splits: bool, cuts: bool
) -> None:
    """Where a class takes texts apart itself, or splits special tokens, it is left alone."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    tokenizer.__class__ = type("Own", (type(tokenizer),), own)
    tokenizer.split_special_tokens = splits
    renderer: Any = SimpleNamespace(tokenizer=tokenizer, _tokenize_prompt_async=None)
    assert encode_in_segments(renderer, 0) == cuts
    assert (renderer._tokenize_prompt_async is not None) == cuts


def test_threads_do_not_disturb_each_other(model: Model) -> None:
    """Requests rendered at the same time get their own ids."""
    bodies = [
        json.dumps(
            {"model": "m"} | Conversation(None, [("user", f"word {n} " * n)]).chat()
        ).encode()
        for n in range(40)
    ]

    def ours(body: bytes) -> list[int]:
        rendered = model.ours.render(CHAT, body, SessionId("same"))
        assert isinstance(rendered, Prompt)
        return list(map(int, rendered.ids))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ours, bodies)) == [model.vllms.ids(CHAT, body) for body in bodies]


IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/image.png"}}
SOURCE = {"type": "url", "url": "http://127.0.0.1:9/image.png"}


def _said(role: str, *parts: Body) -> Body:
    return {"messages": [{"role": role, "content": list(parts)}]}


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        (CHAT, _said("user", {"type": "text", "text": "see"}, IMAGE), "NotText"),
        (CHAT, _said("system", IMAGE), "NotText"),
        (CHAT, _said("assistant", IMAGE), "NotText"),
        (CHAT, _said("tool", IMAGE), "NotText"),
        (CHAT, _said("developer", IMAGE), "NotText"),
        (
            MESSAGES,
            _said("user", {"type": "image", "source": SOURCE}) | {"max_tokens": 1},
            "NotText",
        ),
        (
            RESPONSES,
            {
                "input": [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [
                            {
                                "type": "input_image",
                                "detail": "auto",
                                "image_url": "http://127.0.0.1:9/a.png",
                            }
                        ],
                    }
                ]
            },
            "NotText",
        ),
        (COMPLETIONS, {"prompt_embeds": "AAAA"}, "NotText"),
        (CHAT, {}, "ValidationError"),
        (CHAT, {"messages": []}, "VLLMValidationError"),
        (CHAT, {"messages": [{"role": "user", "content": "\ud800"}]}, "TypeError"),
        (CHAT, {"messages": [{"role": "user", "content": "a" * 10**6}]}, "VLLMValidationError"),
        (CHAT, {"messages": [{"role": "user", "content": "word " * 9000}]}, "VLLMValidationError"),
        (CHAT, _said("user") | {"chat_template": "x"}, "BadRequestError"),
        (COMPLETIONS, {"prompt": [-1]}, "ValidationError"),
        (RESPONSES, {"input": "x", "previous_response_id": "resp_1"}, "in a replica"),
        (MESSAGES, {"messages": []}, "ValidationError"),
    ],
)
def test_what_has_no_ids(
    model: Model,
    path: str,
    body: Body,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not text, what vLLM refuses, and what only a replica knows gives a reason."""
    monkeypatch.setattr("socket.socket.connect", None)  # nothing is fetched, either
    rendered = model.render(path, body)
    assert isinstance(rendered, NotRenderable)
    assert reason in rendered.reason


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b""),
        (CHAT, b"{"),
        (CHAT, b"[1]"),
        (CHAT, b"\xff"),
        (CHAT, b"[" * 100_000),
        (COMPLETIONS, b'{"model": "m", "prompt": ["a", "b"]}'),
        (COMPLETIONS, b'{"model": "m", "prompt": [1099511627776]}'),
        ("/v1/messages/count_tokens", b'{"model": "m", "messages": []}'),
        ("/v1/models", b""),
    ],
)
def test_bodies_and_paths_without_ids(model: Model, path: str, body: bytes) -> None:
    """Bodies that cannot be parsed, several prompts at once and other paths give a reason."""
    assert isinstance(model.ours.render(path, body, None), NotRenderable)

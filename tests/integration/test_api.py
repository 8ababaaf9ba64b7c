"""The APIs that coding agents speak, through their own SDKs."""

import asyncio
from typing import Any

import anthropic
import httpx
import openai
import pytest

from serve_app.http_message import REPLICA_HEADER
from tests.integration.conftest import Service

REPLICA = REPLICA_HEADER.decode()
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Where"}},
    "required": ["city"],
}


@pytest.fixture
def client(service: Service) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def claude(service: Service) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=service.url, api_key="none", max_retries=0)


def _chat(text: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0} | more


async def _streamed(client: openai.AsyncOpenAI, **request: Any) -> str:
    stream = await client.chat.completions.create(**request, stream=True)
    return "".join(
        [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    )


async def test_models(client: openai.AsyncOpenAI, service: Service) -> None:
    """The model has the name of its directory."""
    assert [model.id async for model in client.models.list()] == [service.model]


async def test_chat(client: openai.AsyncOpenAI) -> None:
    """A streamed chat answer has the text of the whole one, and answers depend on the prompt."""
    whole = await client.chat.completions.create(**_chat("What is a KV cache?"))
    text = whole.choices[0].message.content
    assert text
    assert await _streamed(client, **_chat("What is a KV cache?")) == text
    assert await _streamed(client, **_chat("What is a TPU?")) != text


async def test_chat_with_tools(client: openai.AsyncOpenAI) -> None:
    """Tool definitions are taken, streaming or not."""
    function = {"name": "weather", "description": "Weather", "parameters": WEATHER}
    tools = [{"type": "function", "function": function}]
    whole = await client.chat.completions.create(**_chat("Rain in Oslo?", tools=tools))
    assert whole.choices[0].finish_reason == "length"
    assert await _streamed(client, **_chat("Rain in Oslo?", tools=tools))


async def test_completions(client: openai.AsyncOpenAI) -> None:
    """The older completions API answers too."""
    request = {"model": "tiny", "prompt": "def f(x):", "max_tokens": 8, "temperature": 0}
    whole = await client.completions.create(**request)  # type: ignore[call-overload]
    stream = await client.completions.create(**request, stream=True)  # type: ignore[call-overload]
    assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text


async def test_responses(client: openai.AsyncOpenAI) -> None:
    """The Responses API, which Codex speaks, with a tool and a stream that ends completed."""
    request: dict[str, Any] = {
        "model": "tiny",
        "input": "List the files.",
        "max_output_tokens": 8,
        "temperature": 0,
        "store": False,
        "tools": [{"type": "function", "name": "ls", "parameters": WEATHER, "strict": False}],
    }
    whole = await client.responses.create(**request)
    assert whole.output_text
    stream = await client.responses.create(**request, stream=True)
    events = [event async for event in stream]
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == whole.output_text


async def test_messages(claude: anthropic.AsyncAnthropic) -> None:
    """The Messages API, which Claude Code speaks, with its headers, a tool and a stream."""
    request: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 8,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"name": "weather", "description": "Weather", "input_schema": WEATHER}],
        "metadata": {"user_id": "user_1_account__session_claude-1"},
        "extra_headers": {"anthropic-beta": "prompt-caching-2024-07-31"},
        "extra_body": {"temperature": 0},
    }
    whole = await claude.messages.create(**request)
    assert whole.usage.output_tokens == 8
    async with claude.messages.stream(**request) as stream:
        text = "".join([piece async for piece in stream.text_stream])
    assert text == "".join(block.text for block in whole.content if block.type == "text")


async def test_count_tokens(claude: anthropic.AsyncAnthropic) -> None:
    """Claude Code counts tokens before it sends them."""
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    counted = await claude.messages.count_tokens(model="tiny", messages=messages)
    answered = await claude.messages.create(model="tiny", max_tokens=1, messages=messages)
    assert counted.input_tokens == answered.usage.input_tokens > 0


async def test_tokenize_and_back(service: Service) -> None:
    """Tokens go back to the text they came from."""
    async with httpx.AsyncClient(base_url=service.url) as http:
        text = "def f(x): return x + 1"
        body = {"model": "tiny", "prompt": text, "add_special_tokens": False}
        tokens = (await http.post("/tokenize", json=body)).json()["tokens"]
        response = await http.post("/detokenize", json={"model": "tiny", "tokens": tokens})
    assert response.json() == {"prompt": text}


async def test_a_session_stays_where_its_kv_is(client: openai.AsyncOpenAI) -> None:
    """Turns of one session meet one replica and its cached prefix; sessions use both replicas."""

    async def turns(session: str) -> tuple[set[str], list[int]]:
        replicas, cached = set(), []
        text = f"This is session {session}. " + "We look at one file after the other. " * 20
        for turn in range(3):
            raw = await client.chat.completions.with_raw_response.create(
                **_chat(text + f"Turn {turn}."), extra_headers={"X-Session-ID": session}
            )
            replicas.add(raw.headers[REPLICA])
            usage = raw.parse().usage
            assert usage is not None
            assert usage.prompt_tokens_details is not None
            cached.append(usage.prompt_tokens_details.cached_tokens or 0)
        return replicas, cached

    used: set[str] = set()
    for session in range(8):
        replicas, cached = await turns(f"stay-{session}")
        assert len(replicas) == 1
        assert cached[1] >= 128
        assert cached[2] >= 128
        used |= replicas
    assert len(used) == 2


async def test_a_billing_line_that_changes_breaks_no_prefix(client: openai.AsyncOpenAI) -> None:
    """Claude Code's line with a new nonce each turn costs no cached token."""
    cached: dict[str, list[int]] = {"chat": [], "responses": []}
    for nonce in ("0a1b2", "3c4d5", "6e7f8"):
        line = f"x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli; cch={nonce};"
        habits = " a coding agent. " + "Read the file before you edit it. " * 30
        chat = await client.chat.completions.create(
            model="tiny",
            messages=[
                {"role": "developer", "content": f"{line}\nYou are{habits}"},
                {"role": "user", "content": "Go on."},
            ],
            max_tokens=2,
            extra_headers={"X-Session-ID": "billing-chat"},
        )
        assert chat.usage
        assert chat.usage.prompt_tokens_details
        cached["chat"].append(chat.usage.prompt_tokens_details.cached_tokens or 0)
        response = await client.responses.create(
            model="tiny",
            instructions=f"{line}\nI am{habits}",
            input="Go on.",
            max_output_tokens=2,
            extra_headers={"X-Session-ID": "billing-responses"},
        )
        assert response.usage
        cached["responses"].append(response.usage.input_tokens_details.cached_tokens)
    for first, *later in cached.values():
        assert first < 64
        assert min(later) >= 192


async def test_sixteen_streams_at_once(client: openai.AsyncOpenAI) -> None:
    """Sixteen clients that stream at the same time each get the answer to their own prompt."""
    prompts = [f"Question number {number}: what is {number} times two?" for number in range(16)]
    answers = await asyncio.gather(*(_streamed(client, **_chat(p, max_tokens=40)) for p in prompts))
    for prompt, answer in zip(prompts, answers, strict=True):
        whole = await client.chat.completions.create(**_chat(prompt, max_tokens=40))
        assert whole.choices[0].message.content == answer
    assert len(set(answers)) == 16


async def test_bytes_pass_unchanged(service: Service) -> None:
    """vLLM's own headers and its server-sent events arrive as they were made."""
    request = _chat("hello", stream=True)
    async with httpx.AsyncClient(base_url=service.url) as http:
        response = await http.post("/v1/chat/completions", json=request)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    events = response.text.split("\n\n")
    assert all(event.startswith("data: {") for event in events[:-2])
    assert events[-2:] == ["data: [DONE]", ""]

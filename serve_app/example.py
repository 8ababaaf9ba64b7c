"""One worked conversation, so that whoever starts warmturn sees its effect at once."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam
from openai.types.completion_usage import CompletionUsage

from serve_app.http_message import REPLICA_HEADER

QUESTIONS = ("What is the capital of France?", "And of Italy?")
MAX_ANSWER_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn of the conversation cost."""

    question: str
    answer: str
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float
    replica: str


def conversation(base_url: str) -> Iterator[Turn]:
    """Hold a conversation of one session with the service at `base_url`, a Turn at a time."""
    client = OpenAI(base_url=f"{base_url}/v1", api_key="none")
    model = client.models.list().data[0].id
    session = {"X-Session-ID": f"example-{uuid.uuid4()}"}
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": _context()}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        turn = ask(client, model, messages, session)
        messages.append({"role": "assistant", "content": turn.answer})
        yield turn


def ask(
    client: OpenAI,
    model: str,
    messages: list[ChatCompletionMessageParam],
    session: dict[str, str],
) -> Turn:
    """Stream the answer to `messages`; `session` is the header that names the session."""
    started = time.perf_counter()
    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=messages,
        max_tokens=MAX_ANSWER_TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=session,
    )
    ttft_s: float | None = None
    answer = ""
    usage: CompletionUsage | None = None
    for chunk in raw.parse():
        usage = chunk.usage or usage
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            ttft_s = ttft_s or time.perf_counter() - started
            answer += piece
    assert usage is not None
    assert ttft_s is not None
    details = usage.prompt_tokens_details
    return Turn(
        question=str(messages[-1]["content"]),
        answer=answer.strip(),
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=(details and details.cached_tokens) or 0,
        ttft_s=ttft_s,
        replica=raw.headers[REPLICA_HEADER.decode()],
    )


def _context() -> str:
    """A coding agent's kind of system prompt: instructions, and a file it works on."""
    source = Path(__file__).with_name("session_id.py").read_text()
    return f"You are a helpful assistant. You can see this file:\n\n{source}\nAnswer briefly."

"""What it costs to turn a long session's next request into token ids."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from policies.types import SessionId
from serve_app.http_message import HttpRequest
from serve_app.segment_encoder import SegmentEncoder, cuts

REPEATS = 10
PATH = "/v1/chat/completions"
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class TokenizeCosts:
    """What was measured.

    `tokenize_full_ms`: the tokenizer alone, on the whole text. `tokenize_incremental_ms`: the
    encoder that has seen the session's last turn, on the whole text of its next one.
    `read_cold_ms` and `read_turn_ms`: all that is done with a request before it is routed, for one
    of an unknown session and for such a next one: JSON, validation, chat template, encoding,
    hashing, comparing with the last turn, handing the ids to the engine. `render_turn_ms`: the part
    of the latter that gets the ids.
    """

    tokenize_full_ms: float
    tokenize_incremental_ms: float
    render_turn_ms: float
    read_cold_ms: float
    read_turn_ms: float
    session_tokens: int
    new_tokens: int


class Session:
    """A conversation of one agent, which grows."""

    def __init__(self, tokenizer: Any, tokens: int) -> None:
        self.messages = [{"role": "system", "content": "You are a coding agent."}]
        self._tokenizer = tokenizer
        self._numbers = count()
        while len(tokenizer(self.text()).input_ids) < tokens:
            for _ in range(10):
                self.grow()

    def grow(self) -> None:
        """Add an answer and a tool's result, about 700 tokens."""
        number = next(self._numbers)
        lines = [f"{i} def f{i}_{number}(x): return x + {i}" for i in range(35)]
        self.messages += [
            {"role": "assistant", "content": f"I will look at file{number}.py, then test."},
            {"role": "user", "content": "tool result:\n" + "\n".join(lines)},
        ]

    def text(self) -> str:
        """Return the text of the prompt."""
        text: str = self._tokenizer.apply_chat_template(
            self.messages, tokenize=False, add_generation_prompt=True
        )
        return text

    def body(self) -> bytes:
        """Return the request."""
        return json.dumps({"model": "model", "messages": self.messages}).encode()


def measure(model: Path, session_tokens: int) -> TokenizeCosts:
    """Let a session of some length take turns.

    Raises:
        ValueError: this tokenizer cannot encode in segments.
    """
    tokenizer = AutoTokenizer.from_pretrained(model)
    backend: Tokenizer = tokenizer.backend_tokenizer
    session = Session(tokenizer, session_tokens)
    cut = cuts(backend)
    if cut is None:
        raise ValueError(f"{model}: joined segments might differ from the whole")
    encoder = SegmentEncoder(backend, cut, max_bytes=2**28)
    before = sum(map(len, encoder.encode(session.text())))
    full_ms = _time_ms(session, lambda text: backend.encode(text, add_special_tokens=False))
    encoder.encode(session.text())
    incremental_ms = _time_ms(session, encoder.encode)
    after = sum(map(len, encoder.encode(session.text())))
    render_turn_ms, read_cold_ms, read_turn_ms = _read_ms(model, session, 2 * after)
    return TokenizeCosts(
        tokenize_full_ms=full_ms,
        tokenize_incremental_ms=incremental_ms,
        render_turn_ms=render_turn_ms,
        read_cold_ms=read_cold_ms,
        read_turn_ms=read_turn_ms,
        session_tokens=after,
        new_tokens=(after - before) // (2 * REPEATS),
    )


def _time_ms(session: Session, encode: Callable[[str], object]) -> float:
    times_ms = []
    for _ in range(REPEATS):
        session.grow()
        text = session.text()
        started = time.perf_counter()
        encode(text)
        times_ms.append((time.perf_counter() - started) * 1e3)
    return median(times_ms)


def _read_ms(model: Path, session: Session, max_tokens: int) -> tuple[float, float, float]:
    """Return what rendering a turn takes, and reading a cold prompt and a turn."""
    # They import vLLM, which takes many seconds.
    from serve_app import engine_args
    from serve_app.prompts import Prompts
    from serve_app.render import PromptRenderer

    settings = {
        "model": str(model),
        "max_model_len": max_tokens,
        "hf_overrides": {"max_position_embeddings": max_tokens},
    }
    renderer = PromptRenderer(engine_args.parse(settings))
    prompts = Prompts(renderer, "model", ["model"])

    async def read(body: bytes) -> None:
        request = HttpRequest("POST", PATH, b"", (), body)
        found = await prompts.read(request, SessionId("session"), BLOCK_SIZE)
        assert found.not_rendered is None

    def times_ms(use: Callable[[bytes], object]) -> list[float]:
        taken_ms = []
        for _ in range(REPEATS + 1):
            session.grow()
            body = session.body()
            started = time.perf_counter()
            use(body)
            taken_ms.append((time.perf_counter() - started) * 1e3)
        return taken_ms

    with asyncio.Runner() as runner:
        cold_ms, *turns_ms = times_ms(lambda body: runner.run(read(body)))
    renders_ms = times_ms(lambda body: renderer.render(PATH, body, SessionId("session")))
    prompts.close()
    renderer.close()
    return median(renders_ms), cold_ms, median(turns_ms)

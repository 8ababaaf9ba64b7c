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
from serve_app.segment_encoder import SegmentEncoder, cuts

REPEATS = 10
PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class TokenizeCosts:
    """What was measured.

    `tokenize_full_ms`: the tokenizer alone, on the whole text. `tokenize_incremental_ms`: the
    encoder that has seen the session's last turn, on the whole text of its next one.
    `render_turn_ms`: all of such a request, with JSON, validation, chat template and encoding.
    """

    tokenize_full_ms: float
    tokenize_incremental_ms: float
    render_turn_ms: float
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
    return TokenizeCosts(
        tokenize_full_ms=full_ms,
        tokenize_incremental_ms=incremental_ms,
        render_turn_ms=_render_turn_ms(model, session, 2 * after),
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


def _render_turn_ms(model: Path, session: Session, max_tokens: int) -> float:
    # They import vLLM, which takes many seconds.
    from serve_app import engine_args
    from serve_app.render import Prompt, PromptRenderer

    settings = {
        "model": str(model),
        "max_model_len": max_tokens,
        "hf_overrides": {"max_position_embeddings": max_tokens},
    }
    renderer = PromptRenderer(engine_args.parse(settings))

    async def times_ms() -> list[float]:
        taken_ms = []
        for _ in range(REPEATS + 1):
            session.grow()
            body = session.body()
            started = time.perf_counter()
            rendered = await renderer.render(PATH, body, SessionId("session"))
            taken_ms.append((time.perf_counter() - started) * 1e3)
            assert isinstance(rendered, Prompt)
        return taken_ms[1:]  # the first one is cold

    turn_ms = median(asyncio.run(times_ms()))
    renderer.close()
    return turn_ms

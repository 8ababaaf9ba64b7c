"""What is heard of an engine's generations, over a fake of vLLM's engine."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.stats import RequestStateStats

from policies.types import RequestId
from serve_app.engine_turn import EngineTurn, current_turn
from serve_app.watched_llm import WatchedLLM

PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
ANSWER = [11, 12, 13]


class FakeWatcher:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.prefills: list[tuple[int, float, float]] = []
        self.first_tokens: list[RequestId] = []

    def prefilled(self, tokens: int, began_at_s: float, first_token_at_s: float) -> None:
        self.prefills.append((tokens, began_at_s, first_token_at_s))

    def first_token(self, request: RequestId) -> None:
        self.first_tokens.append(request)


class FakeVllm:
    """Generates ANSWER token by token, in the kind of outputs that it is asked for.

    A request waits from 10 to 15 s and prefills until 16.
    """

    def __init__(self) -> None:
        self.closed = 0
        self.params: list[SamplingParams] = []

    async def generate(
        self, prompt: Any, params: SamplingParams, request_id: str
    ) -> AsyncGenerator[RequestOutput, None]:
        assert prompt == PROMPT
        self.params.append(params)
        try:
            for count in range(1, len(ANSWER) + 1):
                start = count - 1 if params.output_kind is RequestOutputKind.DELTA else 0
                tokens, finished = ANSWER[start:count], count == len(ANSWER)
                if finished or params.output_kind is not RequestOutputKind.FINAL_ONLY:
                    piece = CompletionOutput(0, "", tokens, None, None)
                    yield RequestOutput(
                        request_id,
                        None,
                        PROMPT,
                        None,
                        [piece],
                        finished,
                        metrics=RequestStateStats(
                            queued_ts=10.0, scheduled_ts=15.0, first_token_ts=16.0
                        ),
                        num_cached_tokens=8,
                    )
        finally:
            self.closed += 1


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> FakeVllm:
    """Stands in for AsyncLLM."""
    fake = FakeVllm()
    monkeypatch.setattr(AsyncLLM, "generate", lambda _, *args, **more: fake.generate(*args, **more))
    return fake


@pytest.fixture
def llm(vllm: FakeVllm) -> WatchedLLM:
    """An engine that was not started, with someone who listens."""
    assert vllm
    made: WatchedLLM = object.__new__(WatchedLLM)
    made.watcher = FakeWatcher()
    return made


async def _generate(llm: WatchedLLM, **params: Any) -> tuple[EngineTurn, list[RequestOutput]]:
    turn = EngineTurn(RequestId("q1"))
    current_turn.set(turn)
    outputs = [one async for one in llm.generate(PROMPT, SamplingParams(**params), "cmpl-1")]
    return turn, outputs


@pytest.mark.parametrize("kind", list(RequestOutputKind))
async def test_a_turn_is_added_up(llm: WatchedLLM, kind: RequestOutputKind) -> None:
    """Whatever kind of outputs is asked for, and the outputs are of that kind."""
    turn, outputs = await _generate(llm, output_kind=kind)
    end = turn.end()
    assert (end.prompt_tokens, end.cached_tokens, end.output_tokens) == (10, 8, 3)
    assert end.ttft_s is not None
    watcher: Any = llm.watcher
    assert watcher.prefills == [(2, 15.0, 16.0)], "without the time that it waited before"
    assert watcher.first_tokens == ["q1"]
    tokens = [list(one.outputs[0].token_ids) for one in outputs]
    assert (
        tokens
        == {
            RequestOutputKind.CUMULATIVE: [[11], [11, 12], ANSWER],
            RequestOutputKind.DELTA: [[11], [12], [13]],
            RequestOutputKind.FINAL_ONLY: [ANSWER],
        }[kind]
    )


async def test_the_first_token_is_heard_of_before_a_whole_answer(
    llm: WatchedLLM, vllm: FakeVllm
) -> None:
    """vLLM is asked for outputs on the way, of which the caller sees the last alone."""
    await _generate(llm, output_kind=RequestOutputKind.FINAL_ONLY)
    assert vllm.params[0].output_kind is RequestOutputKind.CUMULATIVE


async def test_several_generations_make_one_turn(llm: WatchedLLM) -> None:
    """Its first token is that of the first one."""
    turn = EngineTurn(RequestId("q1"))
    current_turn.set(turn)
    for number in range(2):
        async for _ in llm.generate(PROMPT, SamplingParams(), f"cmpl-{number}"):
            pass
    assert (turn.prompt_tokens, turn.output_tokens) == (20, 6)
    assert llm.watcher.first_tokens == ["q1"]  # type: ignore[attr-defined]


async def test_who_is_no_turn_is_not_heard(llm: WatchedLLM) -> None:
    """Such as the engine's own warm-up."""
    current_turn.set(None)
    async for _ in llm.generate(PROMPT, SamplingParams(), "warm-up"):
        pass
    assert llm.watcher.prefills == []  # type: ignore[attr-defined]


async def test_an_answer_that_nobody_reads_ends_in_the_engine(
    llm: WatchedLLM, vllm: FakeVllm
) -> None:
    """At once, not when memory is cleaned up."""
    async with aclosing(llm.generate(PROMPT, SamplingParams(), "cmpl-1")) as outputs:
        await anext(outputs)
        assert vllm.closed == 0
    assert vllm.closed == 1


async def test_no_client_decides_how_blocks_are_announced(llm: WatchedLLM, vllm: FakeVllm) -> None:
    """Announced again and again they'd look like several copies."""
    await _generate(llm, extra_args={"kv_cache_report_mode": "full", "other": 1})
    assert vllm.params[0].extra_args == {"other": 1}

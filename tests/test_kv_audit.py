"""What audits of KV come to, over a fake of an engine whose cache a test can spoil."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from vllm.logprobs import Logprob
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import PauseMode

from serve_app import kv_audit
from serve_app.audit_verdict import Verdict
from serve_app.greedy_answer import TOLERANCE, GreedyAnswer
from serve_app.kv_audit import CLEARINGS, KvAudit

PROMPT = {"type": "token", "prompt_token_ids": [1, 2, 3]}
RIGHT, WRONG = [7, 8, 9], [7, 5, 6]


def answer(*places: tuple[int, dict[int, float]], cached_tokens: int = 2) -> GreedyAnswer:
    tokens, logprobs = zip(*places, strict=True)
    return GreedyAnswer(tokens, logprobs, cached_tokens)


@dataclass
class FakeEngine:
    """Answers RIGHT, or WRONG from a spoilt cache; `noise` are further computed answers."""

    is_spoilt: bool = False
    cached_tokens: int = 2
    noise: list[list[int]] = field(default_factory=list)
    refusals: int = 0
    error: Exception | None = None
    asked: list[tuple[Any, Any, bool]] = field(default_factory=list)
    is_paused: bool = False
    logprobs: list[int | None] = field(default_factory=list)
    modes: list[PauseMode] = field(default_factory=list)
    cleared: int = 0

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, *, lora_request: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        is_computed = bool(sampling_params.skip_reading_prefix_cache)
        self.asked.append((prompt, lora_request, is_computed))
        self.logprobs.append(sampling_params.logprobs)
        if self.error:
            raise self.error
        tokens = WRONG if self.is_spoilt and not is_computed else RIGHT
        if is_computed and self.noise:
            tokens = self.noise.pop()
        likely: list[Any] = [{token: Logprob(-0.1), 1: Logprob(-5.0)} for token in tokens]
        piece = CompletionOutput(0, "", tokens, None, likely)
        cached_tokens = 0 if is_computed else self.cached_tokens
        yield RequestOutput(
            request_id, None, [1, 2, 3], None, [piece], True, num_cached_tokens=cached_tokens
        )

    async def pause_generation(self, *, mode: PauseMode, clear_cache: bool) -> None:
        assert not clear_cache
        self.is_paused = True
        self.modes.append(mode)

    async def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        assert self.is_paused
        assert reset_running_requests
        assert reset_connector
        if self.refusals:
            self.refusals -= 1
            if self.refusals % 2:
                return False
            raise RuntimeError("requests wait for KV")
        self.is_spoilt = False
        self.cleared += 1
        return True

    async def resume_generation(self) -> None:
        self.is_paused = False


class Audited:
    """An audit at work, and what it says."""

    def __init__(self, engine: FakeEngine, interval_s: float) -> None:
        self.verdicts: asyncio.Queue[Verdict] = asyncio.Queue()
        self.audit = KvAudit(engine, interval_s, self.verdicts.put_nowait)

    async def offer(self, prompt: Any = PROMPT, cached_tokens: int = 2) -> None:
        await asyncio.sleep(0.02)  # so that the next one is due
        self.audit.offer(prompt, "adapter", cached_tokens)

    async def verdict(self) -> Verdict:
        return await asyncio.wait_for(self.verdicts.get(), 5)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def audited(engine: FakeEngine) -> AsyncIterator[Audited]:
    audited = Audited(engine, 0.01)
    running = asyncio.create_task(audited.audit.run())
    yield audited
    assert not running.done()
    running.cancel()


async def test_right_kv_is_left_alone(engine: FakeEngine, audited: Audited) -> None:
    """The turn's own prompt and adapter are asked for, from the cache and then without it.

    But not as if they had come when the turn did.
    """
    await audited.offer(PROMPT | {"arrival_time": 1.0})
    assert await audited.verdict() is Verdict.SAME
    assert engine.asked == [(PROMPT, "adapter", False), (PROMPT, "adapter", True)]
    assert not engine.cleared


async def test_wrong_kv_is_thrown_away(
    engine: FakeEngine, audited: Audited, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and the prompt is computed anew; what the log says of it is its size."""
    engine.is_spoilt = True
    await audited.offer()
    assert await audited.verdict() is Verdict.DIFFERS
    await audited.offer()
    assert await audited.verdict() is Verdict.SAME
    assert (engine.cleared, engine.is_paused) == (1, False)
    assert [is_computed for *_, is_computed in engine.asked] == [
        *(False, True, True),
        True,
        *(False, True),
    ]
    [record] = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "a prompt of 3 tokens, 2 of them cached" in record.getMessage()


@pytest.mark.parametrize(("refusals", "cleared"), [(2, 1), (len(CLEARINGS), 0)])
async def test_an_engine_that_cannot_empty_its_caches_goes_on(
    engine: FakeEngine,
    audited: Audited,
    refusals: int,
    cleared: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It's asked again for a while, serves meanwhile, and a log says that it never could."""
    monkeypatch.setattr(kv_audit, "RETRY_S", 0.01)
    engine.is_spoilt, engine.refusals = True, refusals
    await audited.offer()
    assert await audited.verdict() is Verdict.DIFFERS
    await audited.offer()
    assert await audited.verdict() is (Verdict.SAME if cleared else Verdict.DIFFERS)
    assert not engine.is_paused
    tries = CLEARINGS[: refusals + 1]
    assert engine.modes[: len(tries)] == list(tries)
    assert ("restart this replica" in caplog.text) is not cleared


async def test_noise_is_not_wrong_kv(engine: FakeEngine, audited: Audited) -> None:
    """An engine whose computations differ as much tells nothing of its cache."""
    engine.noise = [RIGHT, WRONG]
    await audited.offer()
    assert await audited.verdict() is Verdict.UNSTABLE
    assert not engine.cleared


async def test_what_was_evicted_is_not_computed(engine: FakeEngine, audited: Audited) -> None:
    """There is nothing to compare with."""
    engine.cached_tokens = 0
    await audited.offer()
    assert await audited.verdict() is Verdict.UNCACHED
    assert len(engine.asked) == 1


async def test_an_engine_that_fails_is_asked_again(engine: FakeEngine, audited: Audited) -> None:
    """An audit that could not be made is told of nobody but the log."""
    engine.error = ValueError("no")
    await audited.offer()
    await audited.offer()
    engine.error = None
    await audited.offer()
    assert await audited.verdict() is Verdict.SAME


async def test_turns_that_say_nothing_of_the_cache_are_left(
    engine: FakeEngine, audited: Audited
) -> None:
    """Those without cached tokens, and those of images, whose prompt cannot be asked again."""
    await audited.offer(cached_tokens=0)
    await audited.offer({"type": "multimodal", "prompt_token_ids": [1]})
    await audited.offer("a prompt")
    await asyncio.sleep(0.05)
    assert not engine.asked


async def test_one_turn_in_an_interval(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one comes an interval after the start."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[-1])
    audited = Audited(engine, 60.0)
    asked = []
    for now_s in (100.0, 159.0, 160.0, 161.0, 219.0, 221.0):
        clock.append(now_s)
        audited.audit.offer(PROMPT, None, 2)
        running = asyncio.create_task(audited.audit.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asked.append(len(engine.asked) // 2)
        running.cancel()
    assert asked == [0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(("most", "asked"), [(20, 5), (5, 5), (2, 2), (0, 0), (-1, 5)])
async def test_no_more_is_asked_for_than_the_engine_tells(
    engine: FakeEngine, most: int, asked: int
) -> None:
    """`max_logprobs` is a setting of the engine, which refuses what is above it."""
    verdicts: list[Verdict] = []
    audit = KvAudit(engine, 1e-9, verdicts.append, most)
    audit.offer(PROMPT, None, 2)
    running = asyncio.create_task(audit.run())
    await asyncio.sleep(0.01)
    running.cancel()
    assert engine.logprobs == [asked, asked]


LIKELY, UNLIKELY = {1: -0.5, 2: -0.7}, {2: -0.1, 3: -4.0}


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        (answer((1, LIKELY)), answer((1, LIKELY)), True),
        # A near tie: from there on they tell nothing.
        (answer((1, LIKELY), (8, {8: 0.0})), answer((2, LIKELY), (9, {9: 0.0})), True),
        (answer((1, LIKELY)), answer((2, UNLIKELY)), False),
        (answer((1, {1: -0.1})), answer((1, {1: -0.1 - 2 * TOLERANCE})), False),
        (answer((1, LIKELY), (8, {8: 0.0})), answer((1, LIKELY), (9, {9: 0.0, 8: -9.0})), False),
        (answer((1, LIKELY)), answer((1, {1: math.nan})), False),
    ],
    ids=["same", "tie", "other", "unsure", "later", "no number"],
)
def test_agreement(one: GreedyAnswer, other: GreedyAnswer, agree: bool) -> None:
    """It is about how likely tokens are, not which one rounding put first."""
    assert one.agrees(other) is agree

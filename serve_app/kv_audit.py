"""Whether cached KV says what computing says: now and then a turn's prompt is computed once more.

Right after a turn its prompt is answered from the cache, and once more with nothing read from it.
Both are greedy and short, whatever the turn's own sampling was, and no user sees them. Where they
differ, a second computation tells wrong KV from an engine that does not repeat itself.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import PauseMode

from serve_app.audit_verdict import Verdict
from serve_app.greedy_answer import GreedyAnswer

logger = logging.getLogger("ray.serve")

ANSWER_TOKENS = 16
LIKELIEST = 5
"""Of so many tokens at each place the probabilities are compared; vLLM's max_logprobs allows 20."""

CLEARINGS: tuple[PauseMode, ...] = ("keep", "keep", "keep", "wait")
"""How requests are held meanwhile, at each try. While the engine fetches KV for one it empties
nothing; the last way lets it answer all that it has first, and only further ones wait."""

RETRY_S = 1.0


class Engine(Protocol):
    """What an audit needs of AsyncLLM."""

    def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, *, lora_request: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answer a prompt."""

    async def pause_generation(self, *, mode: PauseMode, clear_cache: bool) -> None:
        """Hold all requests."""

    async def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Empty primary cache and CPU tier; False where that cannot be."""

    async def resume_generation(self) -> None:
        """Go on with all requests."""


class KvAudit:
    """Audits one turn in `interval_s` at most, the first that far from now, and tells `verdict`."""

    def __init__(
        self,
        engine: Engine,
        interval_s: float,
        verdict: Callable[[Verdict], None],
        max_logprobs: int = LIKELIEST,
    ) -> None:
        """Ask `engine` for no more than its `max_logprobs`; -1 is any number."""
        self._engine = engine
        self._logprobs = LIKELIEST if max_logprobs < 0 else min(LIKELIEST, max_logprobs)
        self._interval_s = interval_s
        self._verdict = verdict
        self._due_s = time.monotonic() + interval_s
        self._prompts: asyncio.Queue[tuple[Any, Any]] = asyncio.Queue(maxsize=1)

    def offer(self, prompt: Any, lora: Any, cached_tokens: int) -> None:
        """Hear of a turn that is over: AsyncLLM's prompt and LoRA adapter, and what it had cached.

        Prompts of anything but tokens are left alone.
        """
        is_text = isinstance(prompt, dict) and prompt.get("type") == "token"
        if cached_tokens and is_text and self._prompts.empty() and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + self._interval_s
            # With the turn's own time of arrival, vLLM would take all of that turn for waiting.
            asked = {name: value for name, value in prompt.items() if name != "arrival_time"}
            self._prompts.put_nowait((asked, lora))

    async def run(self) -> None:
        """Audit what is offered until cancelled; an engine that fails here is others' business."""
        while True:
            prompt, lora = await self._prompts.get()
            try:
                await self._audit(prompt, lora)
            except Exception:
                logger.exception("an audit of KV failed")

    async def _audit(self, prompt: Any, lora: Any) -> None:
        cached = await self._answer(prompt, lora, is_computed=False)
        if not cached.cached_tokens:
            self._verdict(Verdict.UNCACHED)
            return
        computed = await self._answer(prompt, lora, is_computed=True)
        if cached.agrees(computed):
            self._verdict(Verdict.SAME)
        elif not computed.agrees(await self._answer(prompt, lora, is_computed=True)):
            self._verdict(Verdict.UNSTABLE)
        else:
            self._verdict(Verdict.DIFFERS)
            logger.error(
                "cached KV is wrong: of a prompt of %d tokens, %d of them cached, the answer is not"
                " the computed one; this replica's caches are emptied",
                len(prompt["prompt_token_ids"]),
                cached.cached_tokens,
            )
            await self._clear()
            # A step of the engine, which tells then that its caches are empty; and right KV.
            await self._answer(prompt, lora, is_computed=True)

    async def _answer(self, prompt: Any, lora: Any, *, is_computed: bool) -> GreedyAnswer:
        params = SamplingParams(
            temperature=0,
            max_tokens=ANSWER_TOKENS,
            ignore_eos=True,
            logprobs=self._logprobs,
            detokenize=False,
            skip_reading_prefix_cache=is_computed,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        request = f"kv-audit-{uuid.uuid4().hex}"
        answers = self._engine.generate(prompt, params, request, lora_request=lora)
        async with aclosing(answers):
            async for output in answers:
                if output.finished:
                    return GreedyAnswer.of(output)
        raise RuntimeError("the engine gave no answer")

    async def _clear(self) -> None:
        """Empty the primary cache and the CPU tier; what runs is computed anew, nothing is lost."""
        for mode in CLEARINGS:
            try:
                await self._engine.pause_generation(mode=mode, clear_cache=False)
                if await self._engine.reset_prefix_cache(
                    reset_running_requests=True, reset_connector=True
                ):
                    return
            except Exception:
                logger.warning("the caches could not be emptied yet", exc_info=True)
            finally:
                await self._engine.resume_generation()
            await asyncio.sleep(RETRY_S)
        logger.error("the caches could not be emptied: restart this replica")

"""vLLM's AsyncLLM, watched: when each turn's first token comes, and how much of it was cached."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.stats import RequestStateStats

from policies.types import RequestId
from serve_app.engine_turn import EngineTurn, current_turn
from serve_app.kv_audit import KvAudit

KV_CACHE_REPORT_MODE = "kv_cache_report_mode"


class Watcher(Protocol):
    """Who wants to know."""

    def prefilled(self, tokens: int, began_at_s: float, first_token_at_s: float) -> None:
        """Hear that a prompt of which `tokens` were in no cache was computed, from when to when."""

    def first_token(self, request: RequestId) -> None:
        """Hear that a turn's prefill is done."""


class WatchedLLM(AsyncLLM):
    """Tells `watcher` of each generation of the turn in `current_turn`."""

    watcher: Watcher
    audit: KvAudit | None = None
    """Who is offered each turn that is over."""

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **more: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield what AsyncLLM.generate yields."""
        turn = current_turn.get()
        kind = sampling_params.output_kind
        if kind is RequestOutputKind.FINAL_ONLY and sampling_params.n == 1:
            # The end comes as it would have; the first token is seen on the way.
            sampling_params.output_kind = RequestOutputKind.CUMULATIVE
        if sampling_params.extra_args:
            # A client could make the engine announce blocks again, as if there were more copies.
            sampling_params.extra_args.pop(KV_CACHE_REPORT_MODE, None)
        generated_tokens = 0
        async with aclosing(
            super().generate(prompt, sampling_params, request_id, **more)
        ) as outputs:
            async for output in outputs:
                new_tokens = sum(len(one.token_ids) for one in output.outputs)
                if turn and new_tokens:
                    if not generated_tokens:
                        self._note_first(turn, output)
                    if kind is not RequestOutputKind.DELTA:
                        new_tokens -= generated_tokens
                    turn.output_tokens += new_tokens
                    generated_tokens += new_tokens
                if turn and self.audit and output.finished:
                    cached_tokens = output.num_cached_tokens or 0
                    self.audit.offer(prompt, more.get("lora_request"), cached_tokens)
                if output.finished or kind is not RequestOutputKind.FINAL_ONLY:
                    yield output

    def _note_first(self, turn: EngineTurn, output: RequestOutput) -> None:
        prompt_tokens, cached_tokens = len(output.prompt_token_ids or ()), output.num_cached_tokens
        turn.prompt_tokens += prompt_tokens
        turn.cached_tokens += cached_tokens or 0
        # Scheduled is a request that waits for no room any more, nor for KV from another tier.
        if isinstance(times := output.metrics, RequestStateStats):
            uncached_tokens = prompt_tokens - (cached_tokens or 0)
            self.watcher.prefilled(uncached_tokens, times.scheduled_ts, times.first_token_ts)
        if turn.first_token_at_s is None:
            turn.first_token_at_s = time.monotonic()
            self.watcher.first_token(turn.request)

"""What an engine computes: at most one prefill, in chunks, and answers beside it.

All answers get one token a step. Steps are not simulated: between two events the two speeds, of
the prefill and of each answer, are constant.
"""

from heapq import heappop, heappush
from itertools import count
from math import inf

from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.running import Running


class Batch:
    """Time moves by `elapse`; after every change `plan` sets the speeds for what follows."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware
        self.prefilling: Running | None = None
        self.prefilling_s = 0.0
        """Seconds in which anything was prefilled."""
        self._answering: list[tuple[float, int, Running]] = []
        self._numbers = count()
        self._answered_tokens = 0.0
        """By each request, had it decoded all the time."""
        self._context_tokens = 0.0
        self._prefill_rate = 0.0
        self._answer_rate = 0.0

    def __len__(self) -> int:
        """Return how many requests it computes."""
        return len(self._answering) + (self.prefilling is not None)

    def begin_prefill(self, running: Running, now_s: float) -> None:
        """Prefill a request; nothing else may be prefilled now."""
        running.prefill_began_at_s = now_s
        self.prefilling = running

    def elapse(self, passed_s: float) -> None:
        """Let time pass."""
        self._answered_tokens += passed_s * self._answer_rate
        if self.prefilling:
            self.prefilling.left_tokens -= passed_s * self._prefill_rate
            self.prefilling_s += passed_s

    def plan(self, now_s: float) -> float:
        """Set the speeds; return when the next prefill or answer ends."""
        prefilling, answering = self.prefilling, len(self._answering)
        most = self._hardware.step_tokens
        chunk = 0
        if prefilling:
            chunk = max(1, min(prefilling.uncached_tokens, most - answering))
        step_s = self._hardware.step_s(chunk, answering, self._context_tokens)
        self._answer_rate = 1 / step_s
        self._prefill_rate = chunk / step_s
        next_at_s = inf
        if prefilling:
            next_at_s = now_s + max(0.0, prefilling.left_tokens) / self._prefill_rate
        if self._answering:
            left = max(0.0, self._answering[0][0] - self._answered_tokens)
            next_at_s = min(next_at_s, now_s + left * step_s)
        return next_at_s

    def end_prefill(self) -> Running | None:
        """End the prefill if that's what is due now, and begin its answer."""
        prefilling = self.prefilling
        if prefilling is None:
            return None
        # Rounding leaves a little of what is due; the other one has much more.
        left_answer = self._answering[0][0] - self._answered_tokens if self._answering else inf
        if prefilling.left_tokens / max(self._prefill_rate, 1e-9) > left_answer / self._answer_rate:
            return None
        self.prefilling = None
        turn = prefilling.turn
        self._context_tokens += turn.request.prompt_tokens + turn.output_tokens / 2
        last_token = self._answered_tokens + turn.output_tokens - 1
        heappush(self._answering, (last_token, next(self._numbers), prefilling))
        return prefilling

    def end_answer(self) -> Running:
        """End the answer that is due."""
        answered = heappop(self._answering)[2]
        turn = answered.turn
        self._context_tokens -= turn.request.prompt_tokens + turn.output_tokens / 2
        return answered

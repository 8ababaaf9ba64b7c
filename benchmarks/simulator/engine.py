"""One replica's engine: continuous batching with chunked prefill, between events.

As vLLM's scheduler does it, with simplifications that are named here:

- Requests are taken first come, first served, when their prompt fits into free blocks; one that
  does not fit holds up those behind it. Answers' blocks are taken at once too, a few beside the
  prompt's, so nothing is ever preempted.
- One prefill runs at a time, in chunks; short ones that vLLM would batch follow each other.
- All decoding requests get one token a step. Steps are not simulated: between two events the
  engine's two speeds, of the prefill and of each answer, are constant.
- KV from CPU memory is copied one request after another, while others compute.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf

from benchmarks.simulator.block_pool import BlockPool
from benchmarks.simulator.host_cache import HostCache
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.turn import Turn
from policies.kv_events import EngineHash, Event, Removed, Stored
from policies.rates import HOLD_S
from policies.types import BlockHash, ReplicaId, ReplicaState, Tier

_RECENT_RATIO = 0.95
"""Weight of the past in measured rates, against the newest request."""


@dataclass(slots=True)
class Running:
    """A request that the engine has taken, and what it found cached."""

    turn: Turn
    blocks: int
    gpu_blocks: int
    host_blocks: int
    admitted_at_s: float
    left_tokens: float
    chunk_tokens: int
    prefill_began_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request was taken, and that much of its prompt was cached.

    Until then it waited for prefills, and apart from that for memory.
    """

    turn: Turn
    gpu_blocks: int
    host_blocks: int
    prefills_s: float
    memory_s: float


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A request's prefill ended."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Finished:
    """A request's answer is complete."""

    turn: Turn


Progress = Admitted | FirstToken | Finished


class Engine:
    """A replica. `pool` may be shared by several, which then share their KV.

    `submit` and `advance` return what happened; `take_events` what its caches have to say.
    Its time only moves forward, and never beyond `next_at_s`.
    """

    def __init__(
        self, replica: ReplicaId, hardware: Hardware, pool: BlockPool, host: HostCache
    ) -> None:
        self.replica = replica
        self.hardware = hardware
        self.pool = pool
        self.host = host
        self.next_at_s = inf
        self._now_s = 0.0
        self._waiting: deque[tuple[Turn, float, float]] = deque()
        self._prefilling_s = 0.0
        self._restoring: list[tuple[float, int, Running]] = []
        self._restored: deque[Running] = deque()
        self._prefilling: Running | None = None
        self._decoding: list[tuple[float, int, Running]] = []
        self._numbers = count()
        self._link_free_at_s = 0.0
        self._answered_tokens = 0.0
        """By each request, had it decoded all the time."""
        self._context_tokens = 0.0
        self._prefill_rate = 0.0
        self._decode_rate = 0.0
        self._prefilled_tokens = hardware.prefill_tokens_per_s
        self._prefill_s = 1.0
        self._hold_s = HOLD_S
        self._state: ReplicaState | None = None
        self._events: list[Event] = []

    @property
    def running(self) -> int:
        """Requests that hold GPU memory."""
        return (
            len(self._decoding)
            + (self._prefilling is not None)
            + len(self._restoring)
            + len(self._restored)
        )

    @property
    def state(self) -> ReplicaState:
        """What the replica reports of itself."""
        if self._state is None:
            self._state = ReplicaState(
                replica=self.replica,
                generation=1,
                total_blocks=self.pool.total,
                free_blocks=self.pool.free,
                running=self.running,
                waiting=len(self._waiting),
                max_requests=self.hardware.max_requests,
                prefill_tokens_per_s=self._prefilled_tokens / self._prefill_s,
                restore_tokens_per_s=self.hardware.restore_tokens_per_s,
                fetch_tokens_per_s=self.hardware.prefill_tokens_per_s,
                hold_s=self._hold_s,
            )
        return self._state

    def holds(self, block: BlockHash) -> bool:
        """Tell whether a block is in either memory."""
        return block in self.pool.cached or block in self.host.cached

    def reach(self, prompt: list[BlockHash]) -> int:
        """Return how many blocks of a prompt's beginning are in its memories."""
        return max(matched := self.pool.match(prompt), self.host.match(prompt, matched))

    def take_events(self) -> list[Event]:
        """Return what happened to its caches since the last call."""
        events, self._events = self._events, []
        return events

    def submit(self, turn: Turn, now_s: float) -> list[Progress]:
        """Queue a request."""
        progress = self.advance(now_s)
        self._waiting.append((turn, now_s, self._prefilling_s))
        progress += self._admit()
        self._plan()
        return progress

    def advance(self, now_s: float) -> list[Progress]:
        """Move on to `now_s`."""
        progress: list[Progress] = []
        while self.next_at_s <= now_s:
            self._elapse(self.next_at_s)
            progress += self._complete()
            progress += self._admit()
            self._plan()
        self._elapse(now_s)
        return progress

    def _elapse(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        self._now_s = now_s
        self._answered_tokens += passed_s * self._decode_rate
        if self._prefilling:
            self._prefilling.left_tokens -= passed_s * self._prefill_rate
            self._prefilling_s += passed_s

    def _plan(self) -> None:
        """Set the speeds, and when the next thing happens."""
        self._state = None
        prefilling, decoding = self._prefilling, len(self._decoding)
        chunk = 0
        if prefilling:
            chunk = max(1, min(prefilling.chunk_tokens, self.hardware.step_tokens - decoding))
        step_s = self.hardware.step_s(chunk, decoding, self._context_tokens)
        self._decode_rate = 1 / step_s
        self._prefill_rate = chunk / step_s
        self.next_at_s = self._restoring[0][0] if self._restoring else inf
        if prefilling:
            end_s = self._now_s + max(0.0, prefilling.left_tokens) / self._prefill_rate
            self.next_at_s = min(self.next_at_s, end_s)
        if self._decoding:
            left = max(0.0, self._decoding[0][0] - self._answered_tokens)
            self.next_at_s = min(self.next_at_s, self._now_s + left * step_s)

    def _complete(self) -> list[Progress]:
        """Do what is due now: the one thing that `_plan` found to be next."""
        if self._restoring and self._restoring[0][0] <= self._now_s:
            self._restored.append(heappop(self._restoring)[2])
            return []
        prefilling = self._prefilling
        left_tokens = prefilling.left_tokens if prefilling else inf
        left_answer = self._decoding[0][0] - self._answered_tokens if self._decoding else inf
        # Rounding leaves a little of what is due; the other one has much more.
        if prefilling and left_tokens / max(self._prefill_rate, 1e-9) <= (
            left_answer / self._decode_rate
        ):
            return self._end_prefill(prefilling)
        return [self._finish(heappop(self._decoding)[2])]

    def _admit(self) -> list[Progress]:
        progress: list[Progress] = []
        while self._prefilling is None:
            if self._restored:
                self._begin_prefill(self._restored.popleft())
            elif self._waiting and (taken := self._take(self._waiting[0][0])):
                turn, submitted_s, before_s = self._waiting.popleft()
                prefills_s = self._prefilling_s - before_s
                memory_s = self._now_s - submitted_s - prefills_s
                progress.append(
                    Admitted(turn, taken.gpu_blocks, taken.host_blocks, prefills_s, memory_s)
                )
                if not taken.host_blocks:
                    self._begin_prefill(taken)
                else:
                    self._restore(taken)
            else:
                break
        return progress

    def _take(self, turn: Turn) -> Running | None:
        """Take a request if its blocks fit; None if not."""
        request = turn.request
        # vLLM always computes the last token.
        reusable = request.hashes[: (request.prompt_tokens - 1) // request.block_size]
        matched = self.pool.match(reusable)
        blocks = -(-(request.prompt_tokens + turn.output_tokens) // request.block_size)
        if self.running >= self.hardware.max_requests or not self.pool.fits(
            reusable, matched, blocks
        ):
            return None
        self._remove(Tier.GPU, self.pool.take(reusable, matched, blocks))
        host_end = self.host.match(reusable, matched)
        uncached = max(1, request.prompt_tokens - host_end * request.block_size)
        return Running(
            turn=turn,
            blocks=blocks,
            gpu_blocks=matched,
            host_blocks=host_end - matched,
            admitted_at_s=self._now_s,
            left_tokens=uncached,
            chunk_tokens=min(uncached, self.hardware.step_tokens),
        )

    def _restore(self, running: Running) -> None:
        tokens = running.host_blocks * running.turn.request.block_size
        begin_s = max(self._link_free_at_s, self._now_s)
        self._link_free_at_s = begin_s + tokens / self.hardware.restore_tokens_per_s
        heappush(self._restoring, (self._link_free_at_s, next(self._numbers), running))

    def _begin_prefill(self, running: Running) -> None:
        running.prefill_began_at_s = self._now_s
        self._prefilling = running

    def _end_prefill(self, running: Running) -> list[Progress]:
        turn = running.turn
        request = turn.request
        self._prefilling = None
        new = self.pool.publish(request.hashes[running.gpu_blocks :])
        self._store(Tier.GPU, turn, new)
        if self.host.total:
            added, evicted = self.host.store(request.hashes)
            self._store(Tier.CPU, turn, added)
            self._remove(Tier.CPU, evicted)
        cached = (running.gpu_blocks + running.host_blocks) * request.block_size
        self._prefilled_tokens *= _RECENT_RATIO
        self._prefilled_tokens += max(1, request.prompt_tokens - cached)
        self._prefill_s *= _RECENT_RATIO
        self._prefill_s += self._now_s - running.prefill_began_at_s
        self._context_tokens += request.prompt_tokens + turn.output_tokens / 2
        finished_at = self._answered_tokens + turn.output_tokens - 1
        heappush(self._decoding, (finished_at, next(self._numbers), running))
        return [FirstToken(turn)]

    def _finish(self, running: Running) -> Finished:
        turn = running.turn
        request = turn.request
        self._context_tokens -= request.prompt_tokens + turn.output_tokens / 2
        full_blocks = (request.prompt_tokens + turn.output_tokens) // request.block_size
        answer = self.pool.publish_answer(full_blocks - len(request.hashes))
        self.pool.release([*request.hashes, *answer], running.blocks - full_blocks)
        held_s = self._now_s - running.admitted_at_s
        self._hold_s += (1 - _RECENT_RATIO) * (held_s - self._hold_s)
        return Finished(turn)

    def _store(self, tier: Tier, turn: Turn, new: list[BlockHash]) -> None:
        """Say that blocks of a prompt are in a tier now; they are consecutive."""
        if new:
            hashes = turn.request.hashes
            start = hashes.index(new[0])
            end = start + len(new)
            self._events.append(
                Stored(
                    tier=tier,
                    root=turn.root,
                    parent=EngineHash(hashes[start - 1]) if start else None,
                    engine_hashes=[EngineHash(block) for block in new],
                    contents=turn.contents[start:end].tolist(),
                )
            )

    def _remove(self, tier: Tier, blocks: list[BlockHash]) -> None:
        if blocks:
            self._events.append(Removed(tier, [EngineHash(block) for block in blocks]))

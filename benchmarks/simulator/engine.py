"""One replica's engine: continuous batching with chunked prefill, between events.

As vLLM's scheduler does it, with simplifications that are named here:

- Requests are taken first come, first served, when their prompt fits into free blocks; one that
  does not fit holds up those behind it. Answers' blocks are taken at once too, a few beside the
  prompt's, so nothing is ever preempted.
- One prefill runs at a time, in chunks; short ones that vLLM would batch follow each other.
- All decoding requests get one token a step. Steps are not simulated; see `batch`.
- KV from CPU memory is copied one request after another, while others compute.
- What a request lacks in both memories is fetched from the shared tier, if there is one, when the
  request could be taken but for that; those behind it go on. See `shared_link`.
"""

from collections import deque
from math import inf

from benchmarks.simulator.batch import Batch
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.measured_rates import MeasuredRates
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.progress import Admitted, Finished, FirstToken, Progress
from benchmarks.simulator.running import Running
from benchmarks.simulator.shared_link import Fetched, SharedLink
from benchmarks.simulator.shared_tier import SharedTier
from benchmarks.simulator.turn import Turn
from benchmarks.simulator.waiting import Waiting
from policies.types import ReplicaId, ReplicaState


class Engine:
    """A replica.

    `submit` and `advance` return what happened; `memory.events` what its caches have to say.
    Its time only moves forward, and never beyond `next_at_s`.
    """

    def __init__(
        self,
        replica: ReplicaId,
        hardware: Hardware,
        memory: KvMemory,
        tier: SharedTier | None = None,
    ) -> None:
        self.replica = replica
        self.hardware = hardware
        self.memory = memory
        self.next_at_s = inf
        self._now_s = 0.0
        self._waiting: deque[Waiting] = deque()
        self._restoring: deque[tuple[float, Running]] = deque()
        self._restored: deque[Running] = deque()
        self._link_free_at_s = 0.0
        self._batch = Batch(hardware)
        self._shared = SharedLink(memory, tier) if tier else None
        prefill_tokens_per_s = hardware.prefill_tokens_per_s
        self._rates = MeasuredRates(
            prefill_tokens_per_s,
            self._shared.tokens_per_s if self._shared else prefill_tokens_per_s,
        )
        self._state: ReplicaState | None = None
        self.draining = False

    @property
    def running(self) -> int:
        """Requests that hold GPU memory."""
        return len(self._batch) + len(self._restoring) + len(self._restored)

    @property
    def waiting(self) -> int:
        """Requests that wait for it."""
        return len(self._waiting)

    @property
    def state(self) -> ReplicaState:
        """What the replica reports of itself."""
        if self._state is None:
            self._state = ReplicaState(
                replica=self.replica,
                generation=1,
                total_blocks=self.memory.pool.total,
                free_blocks=self.memory.pool.free,
                running=self.running,
                waiting=self.waiting,
                max_requests=self.hardware.max_requests,
                prefill_tokens_per_s=self._rates.prefill_tokens_per_s,
                restore_tokens_per_s=self.hardware.restore_tokens_per_s,
                fetch_tokens_per_s=self._rates.fetch_tokens_per_s,
                hold_s=self._rates.hold_s,
                draining=self.draining,
            )
        return self._state

    def drain(self) -> None:
        """Report that it takes no more requests."""
        self.draining = True
        self._state = None

    def resume(self) -> None:
        """Report that it takes requests again."""
        self.draining = False
        self._state = None

    def submit(self, turn: Turn, now_s: float) -> list[Progress]:
        """Queue a request."""
        progress = self.advance(now_s)
        self._waiting.append(Waiting(turn, now_s, self._batch.prefilling_s))
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
        self._batch.elapse(now_s - self._now_s)
        self._now_s = now_s

    def _plan(self) -> None:
        """Find out when the next thing happens."""
        self._state = None
        self.next_at_s = self._batch.plan(self._now_s)
        if self._restoring:
            self.next_at_s = min(self.next_at_s, self._restoring[0][0])
        if self._shared:
            self.next_at_s = min(self.next_at_s, self._shared.next_at_s)

    def _complete(self) -> list[Progress]:
        """Do what is due now: the one thing that `_plan` found to be next."""
        if self._restoring and self._restoring[0][0] <= self._now_s:
            self._restored.append(self._restoring.popleft()[1])
            return []
        if self._shared and self._shared.next_at_s <= self._now_s:
            if fetched := self._shared.complete():
                self._end_fetch(fetched)
            return []
        if prefilled := self._batch.end_prefill():
            self._rates.add_prefill(
                prefilled.uncached_tokens, self._now_s - prefilled.prefill_began_at_s
            )
            stored = self.memory.publish(prefilled)
            if self._shared:
                self._shared.write(prefilled.turn, stored, self._now_s)
            return [FirstToken(prefilled.turn)]
        answered = self._batch.end_answer()
        self._rates.add_hold(self._now_s - answered.admitted_at_s)
        self.memory.release(answered)
        return [Finished(answered.turn)]

    def _admit(self) -> list[Progress]:
        """Take what fits, until there is something to prefill."""
        progress: list[Progress] = []
        while self._batch.prefilling is None:
            if self._restored:
                self._batch.begin_prefill(self._restored.popleft(), self._now_s)
            elif admitted := self._take_next():
                progress.append(admitted)
            else:
                break
        return progress

    def _take_next(self) -> Admitted | None:
        """Take the first request that waits for nothing but memory, if there is enough."""
        if self.running >= self.hardware.max_requests:
            return None
        for place, waiting in enumerate(self._waiting):
            if waiting.fetching:
                continue
            if waiting.may_fetch and self._fetch(waiting):
                continue
            if taken := self.memory.take(waiting, self._now_s):
                del self._waiting[place]
                self._begin(taken)
                return self._admitted(waiting, taken)
            return None
        return None

    def _fetch(self, waiting: Waiting) -> bool:
        """Begin to fetch what only the shared tier has of a prompt; False if there is nothing."""
        if self._shared is None or not self._shared.fetch(waiting.turn, self._now_s):
            return False
        waiting.begin_fetch(self._now_s, self._batch.prefilling_s)
        return True

    def _begin(self, taken: Running) -> None:
        if taken.hit.restored_blocks:
            self._restore(taken)
        else:
            self._batch.begin_prefill(taken, self._now_s)

    def _end_fetch(self, fetched: Fetched) -> None:
        transfer = fetched.transfer
        waiting = next(one for one in self._waiting if one.turn is transfer.turn)
        waiting.end_fetch(transfer.blocks, self._now_s, self._batch.prefilling_s)
        waiting.may_fetch = fetched.fits  # else it's computed, as if the tier had nothing
        if transfer.tokens:
            self._rates.add_fetch(transfer.tokens, self._now_s - fetched.began_at_s)

    def _admitted(self, waiting: Waiting, taken: Running) -> Admitted:
        prefills_s = self._batch.prefilling_s - waiting.prefilling_s
        memory_s = self._now_s - waiting.since_s - prefills_s - waiting.fetch_s
        return Admitted(taken.turn, taken.hit, prefills_s, memory_s, waiting.fetch_s)

    def _restore(self, running: Running) -> None:
        """Copy what CPU memory has, after the copies before it."""
        tokens = running.hit.restored_blocks * running.turn.request.block_size
        begin_s = max(self._link_free_at_s, self._now_s)
        self._link_free_at_s = begin_s + tokens / self.hardware.restore_tokens_per_s
        self._restoring.append((self._link_free_at_s, running))

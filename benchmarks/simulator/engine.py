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

from math import inf

from benchmarks.simulator.batch import Batch
from benchmarks.simulator.host_link import HostLink
from benchmarks.simulator.kv_memory import KvMemory
from benchmarks.simulator.measured_rates import MeasuredRates
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.progress import Admitted, Finished, FirstToken, Progress
from benchmarks.simulator.report import Report
from benchmarks.simulator.shared_link import SharedLink
from benchmarks.simulator.shared_tier import SharedTier
from benchmarks.simulator.turn import Turn
from benchmarks.simulator.wait_queue import WaitQueue
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
        self._batch = Batch(hardware)
        self._host = HostLink(hardware.restore_tokens_per_s)
        self._shared = SharedLink(memory, tier) if tier else None
        self._waiting = WaitQueue(memory, self._shared)
        prefill_tokens_per_s = hardware.prefill_tokens_per_s
        self._rates = MeasuredRates(
            prefill_tokens_per_s,
            self._shared.tokens_per_s if self._shared else prefill_tokens_per_s,
        )
        self._report = Report(replica, hardware, memory, self._rates)

    @property
    def running(self) -> int:
        """Requests that hold GPU memory."""
        return len(self._batch) + len(self._host)

    @property
    def waiting(self) -> int:
        """Requests that wait for it."""
        return len(self._waiting)

    @property
    def state(self) -> ReplicaState:
        """What the replica reports of itself."""
        return self._report.state(self.running, self.waiting)

    @property
    def draining(self) -> bool:
        """Whether it reports that it takes no more requests."""
        return self._report.draining

    def drain(self) -> None:
        """Report that it takes no more requests."""
        self._report.draining = True
        self._report.outdate()

    def resume(self) -> None:
        """Report that it takes requests again."""
        self._report.draining = False
        self._report.outdate()

    def submit(self, turn: Turn, now_s: float) -> list[Progress]:
        """Queue a request."""
        progress = self.advance(now_s)
        self._waiting.add(turn, now_s, self._batch.prefilling_s)
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
        self._report.outdate()
        self.next_at_s = min(self._batch.plan(self._now_s), self._host.next_at_s)
        if self._shared:
            self.next_at_s = min(self.next_at_s, self._shared.next_at_s)

    def _complete(self) -> list[Progress]:
        """Do what is due now: the one thing that `_plan` found to be next."""
        if self._host.next_at_s <= self._now_s:
            self._host.complete()
            return []
        if self._shared and self._shared.next_at_s <= self._now_s:
            self._complete_transfer(self._shared)
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

    def _complete_transfer(self, shared: SharedLink) -> None:
        """End a transfer to or from the shared tier."""
        if fetched := shared.complete():
            self._waiting.end_fetch(fetched, self._now_s, self._batch.prefilling_s)
            transfer = fetched.transfer
            if transfer.tokens:
                self._rates.add_fetch(transfer.tokens, self._now_s - fetched.began_at_s)

    def _admit(self) -> list[Progress]:
        """Take what fits, until there is something to prefill."""
        progress: list[Progress] = []
        while self._batch.prefilling is None:
            if copied := self._host.take():
                self._batch.begin_prefill(copied, self._now_s)
            elif admitted := self._take_next():
                progress.append(admitted)
            else:
                break
        return progress

    def _take_next(self) -> Admitted | None:
        """Take the first request that may be taken, and bring its KV or prefill it."""
        if self.running >= self.hardware.max_requests:
            return None
        next_one = self._waiting.take(self._now_s, self._batch.prefilling_s)
        if next_one is None:
            return None
        admitted, taken = next_one
        if taken.hit.restored_blocks:
            self._host.copy(taken, self._now_s)
        else:
            self._batch.begin_prefill(taken, self._now_s)
        return admitted

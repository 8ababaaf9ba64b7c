"""What is measured in a simulation, and what follows from it."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from benchmarks.simulator.engine import Engine
from benchmarks.simulator.progress import Admitted
from benchmarks.simulator.request_record import RequestRecord
from benchmarks.simulator.result import Misses, Percentiles, Result, Waits
from benchmarks.simulator.turn import Turn
from policies.types import BlockHash, ReplicaId, RequestId, SessionId

TTFT_SLO_S = 5.0


class Measurements:
    """Requests that arrived from `warm_up_s` on count; all fill the memory of what was seen."""

    def __init__(self, warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._seen: set[BlockHash] = set()
        self._records: dict[RequestId, RequestRecord] = {}
        self._last: dict[SessionId, ReplicaId] = {}
        self._open: dict[SessionId, int] = {}
        self._moves = 0
        self._splits = 0
        self._dispersions: list[float] = []
        self._running: list[list[int]] = []
        self._replica_s = 0.0
        self.decide_s = 0.0
        self.decisions = 0

    def arrived(self, turn: Turn, now_s: float) -> None:
        """A client sent a request."""
        if now_s >= self._warm_up_s:
            request = turn.request
            self._records[request.request] = RequestRecord(now_s, request.prompt_tokens)

    @property
    def records(self) -> Sequence[RequestRecord]:
        """What became of each request that counts."""
        return list(self._records.values())

    def placed(self, turn: Turn, replica: ReplicaId, now_s: float) -> None:
        """A request was sent to a replica."""
        session = turn.request.session
        assert session is not None
        if record := self._records.get(turn.request.request):
            record.replica, record.placed_at_s = replica, now_s
            if self._last.get(session, replica) != replica:
                self._moves += 1
                self._splits += self._open.get(session, 0) > 0
        self._last[session] = replica
        self._open[session] = self._open.get(session, 0) + 1

    def admitted(
        self, admitted: Admitted, engine: Engine, engines: Collection[Engine], now_s: float
    ) -> None:
        """One of the engines took a request, and its caches had some of the prompt."""
        request = admitted.turn.request
        hit_blocks = admitted.hit.blocks
        hashes, size = request.hashes, request.block_size
        reusable = (request.prompt_tokens - 1) // size
        seen = len(hashes)
        while seen and hashes[seen - 1] not in self._seen:
            seen -= 1
        self._seen.update(hashes[seen:])
        record = self._records.get(request.request)
        if record is None:
            return
        seen = min(seen, reusable)
        reach = hit_blocks
        if hit_blocks < seen:
            prompt = hashes[:seen]
            for other in engines:
                if other is not engine and other.memory.holds(prompt[hit_blocks]):
                    reach = max(reach, other.memory.reach(prompt))
        record.prefills_s, record.memory_s = admitted.prefills_s, admitted.memory_s
        record.router_s = now_s - record.arrived_at_s - record.prefills_s - record.memory_s
        record.hit_tokens = hit_blocks * size
        record.elsewhere_tokens = (reach - hit_blocks) * size
        record.evicted_tokens = (seen - reach) * size

    def first_token(self, turn: Turn, now_s: float) -> None:
        """A request's prefill ended."""
        if record := self._records.get(turn.request.request):
            record.first_at_s = now_s

    def finished(self, turn: Turn, now_s: float) -> None:
        """A request's answer is complete."""
        session = turn.request.session
        assert session is not None
        self._open[session] -= 1
        if not self._open[session]:
            del self._open[session]
        if record := self._records.get(turn.request.request):
            record.ended_at_s = now_s

    def sample(self, engines: Sequence[Engine], now_s: float) -> None:
        """Look at the replicas; to be called once a second."""
        if now_s < self._warm_up_s:
            return
        self._replica_s += len(engines)
        running = [engine.running for engine in engines]
        mean = sum(running) / len(running)
        if mean:
            self._dispersions.append(float(np.var(running)) / mean)
        if int(now_s) % 60 == 0:
            self._running.append(running)

    def result(self, policy: str, replicas: int, load: float, seed: int, end_s: float) -> Result:
        """Sum up. A request that still waits counts with what it has waited by now."""
        records = self.records
        placed = Counter(one.replica for one in records if one.replica is not None)
        admitted = [one for one in records if one.first_at_s is not None]
        prompt = sum(one.prompt_tokens for one in admitted) or 1
        hit = sum(one.hit_tokens for one in admitted)
        first_seen = sum(one.first_seen_tokens for one in admitted)
        good = sum(one.ttft_s(end_s) <= TTFT_SLO_S for one in admitted)
        return Result(
            policy=policy,
            replicas=replicas,
            load=load,
            seed=seed,
            requests=len(records),
            ttft_s=Percentiles.of([one.ttft_s(end_s) for one in records]),
            e2e_s=Percentiles.of([one.e2e_s for one in records if one.e2e_s is not None]),
            hit_ratio=hit / prompt,
            available_ratio=(prompt - first_seen) / prompt,
            captured_ratio=hit / max(1, prompt - first_seen),
            misses=Misses(
                first_seen / prompt,
                sum(one.evicted_tokens for one in admitted) / prompt,
                sum(one.elsewhere_tokens for one in admitted) / prompt,
            ),
            slow_waits_s=Waits.of_slowest(admitted),
            goodput_rps=good / (end_s - self._warm_up_s),
            dispersion=float(np.mean(self._dispersions)) if self._dispersions else 0.0,
            moves=self._moves,
            splits=self._splits,
            decide_ms=self.decide_s / max(1, self.decisions) * 1000,
            busiest_ratio=max(placed.values(), default=0) * replicas / max(1, placed.total()),
            replica_hours=self._replica_s / 3600,
            running=self._running,
        )

"""What is measured in a simulation, and what follows from it."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from benchmarks.simulator.engine import Engine
from benchmarks.simulator.fleet_samples import FleetSamples
from benchmarks.simulator.progress import Admitted
from benchmarks.simulator.request_record import RequestRecord
from benchmarks.simulator.result import Hits, Misses, Percentiles, Result, Waits
from benchmarks.simulator.session_moves import SessionMoves
from benchmarks.simulator.turn import Turn
from policies.types import BlockHash, ReplicaId, RequestId

TTFT_SLO_S = 5.0


class Measurements:
    """Requests that arrived from `warm_up_s` on count; all fill the memory of what was seen."""

    def __init__(self, warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._seen: set[BlockHash] = set()
        self._records: dict[RequestId, RequestRecord] = {}
        self._moves = SessionMoves()
        self.samples = FleetSamples(warm_up_s)
        self.decide_s = 0.0
        self.decisions = 0

    def arrived(self, turn: Turn, now_s: float) -> None:
        """A client sent a request."""
        if now_s >= self._warm_up_s:
            request = turn.request
            self._records[request.request] = RequestRecord(
                now_s, request.prompt_tokens, turn.output_tokens, turn.thick
            )

    @property
    def records(self) -> Sequence[RequestRecord]:
        """What became of each request that counts."""
        return list(self._records.values())

    def placed(self, turn: Turn, replica: ReplicaId, now_s: float) -> None:
        """A request was sent to a replica."""
        session = turn.request.session
        assert session is not None
        record = self._records.get(turn.request.request)
        if record:
            record.replica, record.placed_at_s = replica, now_s
        self._moves.placed(session, replica, counts=record is not None)

    def refused(self, turn: Turn) -> None:
        """A request was turned away; it counts once, from when it was sent first."""
        if record := self._records.get(turn.request.request):
            record.refusals += 1

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
        seen = max(min(seen, reusable), hit_blocks)
        reach = hit_blocks
        if hit_blocks < seen:
            prompt = hashes[:seen]
            for other in engines:
                if other is not engine and other.memory.holds(prompt[hit_blocks]):
                    reach = max(reach, other.memory.reach(prompt))
        record.prefills_s, record.memory_s = admitted.prefills_s, admitted.memory_s
        waited_s = admitted.prefills_s + admitted.memory_s + admitted.fetch_s
        record.router_s = now_s - record.arrived_at_s - waited_s
        record.gpu_tokens = admitted.hit.gpu_blocks * size
        record.host_tokens = admitted.hit.host_blocks * size
        record.shared_tokens = admitted.hit.shared_blocks * size
        record.elsewhere_tokens = (reach - hit_blocks) * size
        record.evicted_tokens = (seen - reach) * size

    def first_token(self, turn: Turn, now_s: float) -> None:
        """A request's prefill ended."""
        if record := self._records.get(turn.request.request):
            record.first_at_s = now_s

    def finished(self, turn: Turn, now_s: float) -> None:
        """A request's answer is complete."""
        self._seen.update(turn.answer)
        session = turn.request.session
        assert session is not None
        self._moves.finished(session)
        if record := self._records.get(turn.request.request):
            record.ended_at_s = now_s

    def result(self, policy: str, replicas: int, load: float, seed: int, end_s: float) -> Result:
        """Sum up. A request that still waits counts with what it has waited by now."""
        records = self.records
        placed = Counter(one.replica for one in records if one.replica is not None)
        admitted = [one for one in records if one.first_at_s is not None]
        prompt = sum(one.prompt_tokens for one in admitted) or 1
        hit = sum(one.hit_tokens for one in admitted)
        first_seen = sum(one.first_seen_tokens for one in admitted)
        ended = [one for one in records if one.ended_at_s is not None]
        tokens_per_s = [one.tokens_per_s for one in ended if one.tokens_per_s is not None]
        measured_s = end_s - self._warm_up_s
        good = sum(one.ttft_s(end_s) <= TTFT_SLO_S for one in admitted)
        return Result(
            policy=policy,
            replicas=replicas,
            load=load,
            seed=seed,
            requests=len(records),
            ttft_s=Percentiles.of([one.ttft_s(end_s) for one in records]),
            ttft_plain_s=_ttft_s([one for one in records if not one.thick], end_s),
            ttft_thick_s=_ttft_s([one for one in records if one.thick], end_s),
            e2e_s=Percentiles.of([one.e2e_s for one in records if one.e2e_s is not None]),
            hit_ratio=hit / prompt,
            hits=Hits(
                sum(one.gpu_tokens for one in admitted) / prompt,
                sum(one.host_tokens for one in admitted) / prompt,
                sum(one.shared_tokens for one in admitted) / prompt,
            ),
            available_ratio=(prompt - first_seen) / prompt,
            captured_ratio=hit / max(1, prompt - first_seen),
            misses=Misses(
                first_seen / prompt,
                sum(one.evicted_tokens for one in admitted) / prompt,
                sum(one.elsewhere_tokens for one in admitted) / prompt,
            ),
            slow_waits_s=Waits.of_slowest(admitted),
            goodput_rps=good / measured_s,
            refusals=sum(one.refusals for one in records),
            prompt_tokens_per_s=prompt / measured_s,
            output_tokens_per_s=sum(one.output_tokens for one in ended) / measured_s,
            user_tokens_per_s=float(np.median(tokens_per_s)) if tokens_per_s else 0.0,
            dispersion=self.samples.dispersion,
            moves=self._moves.moves,
            splits=self._moves.splits,
            decide_ms=self.decide_s / max(1, self.decisions) * 1000,
            busiest_ratio=max(placed.values(), default=0) * replicas / max(1, placed.total()),
            replica_hours=self.samples.replica_s / 3600,
            running=self.samples.running,
        )


def _ttft_s(records: Sequence[RequestRecord], end_s: float) -> Percentiles | None:
    return Percentiles.of([one.ttft_s(end_s) for one in records]) if records else None

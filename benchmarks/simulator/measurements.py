"""What is measured in a simulation, and what follows from it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from benchmarks.simulator.engine import Admitted, Engine
from benchmarks.simulator.turn import Turn
from policies.types import BlockHash, ReplicaId, RequestId, SessionId

TTFT_SLO_S = 5.0


@dataclass(slots=True)
class _Record:
    """What became of one request. Tokens of its prompt are hits or one kind of miss."""

    arrived_at_s: float
    prompt_tokens: int
    hit_tokens: int = 0
    evicted_tokens: int = 0
    elsewhere_tokens: int = 0
    first_at_s: float | None = None
    ended_at_s: float | None = None
    router_s: float = 0.0
    prefills_s: float = 0.0
    memory_s: float = 0.0

    @property
    def first_seen_tokens(self) -> int:
        return self.prompt_tokens - self.hit_tokens - self.evicted_tokens - self.elsewhere_tokens


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of seconds."""

    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Misses:
    """Shares of all prompt tokens that were prefilled.

    `first_seen` were in no earlier prompt; no replica held the `evicted` ones any more; others
    than the chosen one held those `elsewhere`.
    """

    first_seen: float
    evicted: float
    elsewhere: float


@dataclass(frozen=True, slots=True)
class Waits:
    """Mean seconds to the first token of the slowest tenth: what they were waiting for.

    At the router, in the engine for others' prefills, for memory, and for their own KV.
    """

    router: float
    prefills: float
    memory: float
    own: float


@dataclass(frozen=True, slots=True)
class Result:
    """One simulation.

    `available_ratio` is what one memory without end would hit, and `captured_ratio` the part of it
    that was hit. `dispersion` is the variance by the mean of running requests across replicas,
    averaged over time; 1 if they are spread at random. `moves` are turns sent elsewhere than
    their session's last one, `splits` those of them while another one of the session ran there.
    """

    policy: str
    replicas: int
    load: float
    seed: int
    requests: int
    ttft_s: Percentiles
    e2e_s: Percentiles
    hit_ratio: float
    available_ratio: float
    captured_ratio: float
    misses: Misses
    slow_waits_s: Waits
    goodput_rps: float
    dispersion: float
    moves: int
    splits: int
    decide_ms: float
    busiest_ratio: float
    """Requests of the replica that got most, by the mean."""
    running: list[list[int]] = field(repr=False)
    """Requests running in each replica, once a minute."""

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        return asdict(self)


class Measurements:
    """Requests that arrived from `warm_up_s` on count; all fill the memory of what was seen."""

    def __init__(self, warm_up_s: float, engines: Sequence[Engine]) -> None:
        self._warm_up_s = warm_up_s
        self._engines = engines
        self._seen: set[BlockHash] = set()
        self._records: dict[RequestId, _Record] = {}
        self._placed: dict[ReplicaId, int] = {engine.replica: 0 for engine in engines}
        self._last: dict[SessionId, ReplicaId] = {}
        self._open: dict[SessionId, int] = {}
        self._moves = 0
        self._splits = 0
        self._dispersions: list[float] = []
        self._running: list[list[int]] = []
        self.decide_s = 0.0
        self.decisions = 0

    def arrived(self, turn: Turn, now_s: float) -> None:
        """A client sent a request."""
        if now_s >= self._warm_up_s:
            request = turn.request
            self._records[request.request] = _Record(now_s, request.prompt_tokens)

    def placed(self, turn: Turn, replica: ReplicaId) -> None:
        """A request was sent to a replica."""
        session = turn.request.session
        assert session is not None
        counts = turn.request.request in self._records
        if self._last.get(session, replica) != replica and counts:
            self._moves += 1
            self._splits += self._open.get(session, 0) > 0
        self._last[session] = replica
        self._open[session] = self._open.get(session, 0) + 1
        self._placed[replica] += counts

    def admitted(self, admitted: Admitted, engine: Engine, now_s: float) -> None:
        """An engine took a request, and its caches had some of the prompt."""
        request = admitted.turn.request
        hit_blocks = admitted.gpu_blocks + admitted.host_blocks
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
            prompt = list(hashes[:seen])
            for other in self._engines:
                if other is not engine and other.holds(prompt[hit_blocks]):
                    reach = max(reach, other.reach(prompt))
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

    def sample(self, now_s: float) -> None:
        """Look at the replicas; to be called once a second."""
        if now_s < self._warm_up_s:
            return
        running = [engine.running for engine in self._engines]
        mean = sum(running) / len(running)
        if mean:
            self._dispersions.append(float(np.var(running)) / mean)
        if int(now_s) % 60 == 0:
            self._running.append(running)

    def result(self, policy: str, load: float, seed: int, end_s: float) -> Result:
        """Sum up. A request that still waits counts with what it has waited by now."""
        records = list(self._records.values())
        ttft_s = [(one.first_at_s or end_s) - one.arrived_at_s for one in records]
        ended = [one for one in records if one.ended_at_s is not None]
        e2e_s = [one.ended_at_s - one.arrived_at_s for one in ended if one.ended_at_s is not None]
        admitted = [one for one in records if one.first_at_s is not None]
        prompt = sum(one.prompt_tokens for one in admitted) or 1
        hit = sum(one.hit_tokens for one in admitted)
        first_seen = sum(one.first_seen_tokens for one in admitted)
        good = sum(
            one.first_at_s is not None and one.first_at_s - one.arrived_at_s <= TTFT_SLO_S
            for one in records
        )
        placed = list(self._placed.values())
        return Result(
            policy=policy,
            replicas=len(self._engines),
            load=load,
            seed=seed,
            requests=len(records),
            ttft_s=_percentiles(ttft_s),
            e2e_s=_percentiles(e2e_s),
            hit_ratio=hit / prompt,
            available_ratio=(prompt - first_seen) / prompt,
            captured_ratio=hit / max(1, prompt - first_seen),
            misses=Misses(
                first_seen / prompt,
                sum(one.evicted_tokens for one in admitted) / prompt,
                sum(one.elsewhere_tokens for one in admitted) / prompt,
            ),
            slow_waits_s=_waits(admitted),
            goodput_rps=good / (end_s - self._warm_up_s),
            dispersion=float(np.mean(self._dispersions)) if self._dispersions else 0.0,
            moves=self._moves,
            splits=self._splits,
            decide_ms=self.decide_s / max(1, self.decisions) * 1000,
            busiest_ratio=max(placed) * len(placed) / max(1, sum(placed)),
            running=self._running,
        )


def _percentiles(values: Sequence[float]) -> Percentiles:
    if not values:
        return Percentiles(0.0, 0.0, 0.0)
    return Percentiles(*(float(p) for p in np.percentile(values, (50, 90, 99))))


def _waits(records: Sequence[_Record]) -> Waits:
    """Return what the slowest tenth waited for."""
    if not records:
        return Waits(0.0, 0.0, 0.0, 0.0)
    ttft_s = {id(one): (one.first_at_s or 0.0) - one.arrived_at_s for one in records}
    slow = sorted(records, key=lambda one: ttft_s[id(one)])[len(records) * 9 // 10 :]
    parts = [
        (
            one.router_s,
            one.prefills_s,
            one.memory_s,
            ttft_s[id(one)] - one.router_s - one.prefills_s - one.memory_s,
        )
        for one in slow
    ]
    return Waits(*(sum(part) / len(slow) for part in zip(*parts, strict=True)))

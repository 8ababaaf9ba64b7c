"""What a simulation found."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

import numpy as np

from benchmarks.simulator.joining import Joining
from benchmarks.simulator.request_record import RequestRecord


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of seconds."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        """Return them; all 0 if there is nothing."""
        if not seconds:
            return cls(0.0, 0.0, 0.0)
        return cls(*(float(p) for p in np.percentile(seconds, (50, 90, 99))))


@dataclass(frozen=True, slots=True)
class Hits:
    """Shares of all prompt tokens that were in GPU memory, CPU memory, and the shared tier."""

    gpu: float
    cpu: float
    shared: float


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

    @classmethod
    def of_slowest(cls, records: Sequence[RequestRecord]) -> Self:
        """Return what the slowest tenth waited for, of requests that got a first token."""
        slow = sorted(records, key=lambda one: one.ttft_s(0.0))[len(records) * 9 // 10 :]
        if not slow:
            return cls(0.0, 0.0, 0.0, 0.0)
        parts = [
            (
                one.router_s,
                one.prefills_s,
                one.memory_s,
                one.ttft_s(0.0) - one.router_s - one.prefills_s - one.memory_s,
            )
            for one in slow
        ]
        return cls(*(sum(part) / len(slow) for part in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True)
class Result:
    """One simulation.

    `available_ratio` is what one memory without end would hit, and `captured_ratio` the part of it
    that was hit. `dispersion` is the variance by the mean of running requests across replicas,
    averaged over time; 1 if they are spread at random. `moves` are turns sent elsewhere than
    their session's last one, `splits` those of them while another one of the session ran there.
    `ttft_plain_s` and `ttft_thick_s` are of sessions that send no bursts and of those that do; None
    where there are none. `prompt_tokens_per_s` are those of all prompts that were taken, cached
    ones among them, `output_tokens_per_s` those of all complete answers, and `user_tokens_per_s`
    the median of how fast one answer came, from its first token on.
    """

    policy: str
    replicas: int
    load: float
    seed: int
    requests: int
    ttft_s: Percentiles
    ttft_plain_s: Percentiles | None
    ttft_thick_s: Percentiles | None
    e2e_s: Percentiles
    hit_ratio: float
    hits: Hits
    available_ratio: float
    captured_ratio: float
    misses: Misses
    slow_waits_s: Waits
    goodput_rps: float
    refusals: int
    """How often requests were turned away."""
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    user_tokens_per_s: float
    dispersion: float
    moves: int
    splits: int
    decide_ms: float
    busiest_ratio: float
    """Requests of the replica that got most, by the mean."""
    replica_hours: float
    running: list[list[int]] = field(repr=False)
    """Requests running in each replica, once a minute."""
    joining: Joining | None = None

    def row(self) -> dict[str, object]:
        """Return it for JSON."""
        return asdict(self)

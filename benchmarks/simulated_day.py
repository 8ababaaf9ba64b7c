"""A day of agents' traffic through one autoscaler, and what it cost."""

from dataclasses import dataclass
from random import Random

from benchmarks.autoscalers.autoscaler import Autoscaler
from benchmarks.autoscalers.operator import Operator, oscillations
from benchmarks.autoscalers.setting import Setting
from benchmarks.peers.warmturn import make_warmturn
from benchmarks.simulator.day import Day
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.measurements import TTFT_SLO_S, Measurements
from benchmarks.simulator.replica_factory import ReplicaFactory
from benchmarks.simulator.result import Misses, Percentiles
from benchmarks.simulator.turn import Turn
from benchmarks.trace_session import TraceSession


@dataclass(frozen=True, slots=True)
class Result:
    """One day. `slo_misses` are requests without a first token within the SLO."""

    policy: str
    seed: int
    replica_hours: float
    slo_misses: int
    hit_ratio: float
    changes: int
    oscillations: int
    requests: int
    ttft_s: Percentiles
    misses: Misses
    history: list[tuple[float, int, str]]
    """When the number of replicas changed, to what, and why."""


class _Watched(Measurements):
    """Shows arrivals to the autoscaler."""

    def __init__(self, autoscaler: Autoscaler) -> None:
        super().__init__(warm_up_s=0.0)
        self._autoscaler = autoscaler

    def arrived(self, turn: Turn, now_s: float) -> None:
        """A client sent a request."""
        super().arrived(turn, now_s)
        self._autoscaler.arrived(turn, now_s)


def simulate_day(
    name: str, autoscaler: Autoscaler, sessions: list[TraceSession], setting: Setting
) -> Result:
    """Run one autoscaler through the day."""
    factory = ReplicaFactory(setting.hardware, block_size(sessions, setting))
    policy = make_warmturn(Random(setting.seed))  # noqa: S311  # a simulation
    operator = Operator(factory, autoscaler, policy.router, setting)
    measured = _Watched(autoscaler)
    day = Day(sessions, setting.plateau, setting.day_s, setting.seed, setting.merged)
    engines = [factory.make() for _ in range(setting.replicas)]
    Fleet(engines, policy, day, measured, operator).run(setting.day_s)
    found = measured.result(name, setting.replicas, setting.plateau, setting.seed, setting.day_s)
    late = [one.ttft_s(setting.day_s) > TTFT_SLO_S for one in measured.records]
    return Result(
        policy=name,
        seed=setting.seed,
        replica_hours=operator.replica_s / 3600,
        slo_misses=sum(late),
        hit_ratio=found.hit_ratio,
        changes=len(operator.changes),
        oscillations=oscillations(operator.changes),
        requests=found.requests,
        ttft_s=found.ttft_s,
        misses=found.misses,
        history=[(one.at_s, one.after, one.reason) for one in operator.changes],
    )


def block_size(sessions: list[TraceSession], setting: Setting) -> int:
    """Return how many tokens a simulated block has."""
    return sessions[0].block_size * setting.merged

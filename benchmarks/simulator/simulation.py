"""One policy, simulated once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.peers.registry import ORACLE, POOLED_ORACLE, make_policy
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.joining import Joining
from benchmarks.simulator.measurements import Measurements
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.replica_factory import ReplicaFactory
from benchmarks.simulator.result import Result
from benchmarks.simulator.shared_tier import SharedTierSize
from benchmarks.simulator.traffic import ClosedLoop, OpenLoop, Traffic
from benchmarks.trace_session import TraceSession


@dataclass(frozen=True, slots=True)
class Setting:
    """What all policies are simulated with.

    `load` is live sessions a replica, or sessions a second in an open loop. One more replica joins
    at `add_replica_at_s`; live sessions stay as many as they were.
    """

    hardware: Hardware
    replicas: int
    load: float
    seed: int
    end_s: float
    warm_up_s: float
    merged: int
    open_loop: bool
    add_replica_at_s: float | None = None
    shared: SharedTierSize | None = None


def simulate(spec: str, sessions: Sequence[TraceSession], setting: Setting) -> Result:
    """Run one policy; `spec` as `make_policy` takes it."""
    factory = ReplicaFactory(
        setting.hardware,
        sessions[0].block_size * setting.merged,
        setting.shared,
        unlimited=spec == ORACLE,
        pooled=setting.replicas if spec == POOLED_ORACLE else None,
    )
    engines = [factory.make() for _ in range(setting.replicas)]
    measurements = Measurements(setting.warm_up_s)
    policy = make_policy(spec, Random(setting.seed))  # noqa: S311  # a simulation
    at_s = setting.add_replica_at_s

    def operate(fleet: Fleet, now_s: float) -> None:
        if at_s is not None and now_s >= at_s and len(fleet.engines) == setting.replicas:
            fleet.join(factory.make(), now_s)

    fleet = Fleet(engines, policy, _traffic(sessions, setting), measurements, operate)
    fleet.run(setting.end_s)
    result = measurements.result(spec, setting.replicas, setting.load, setting.seed, setting.end_s)
    if at_s is None or len(fleet.engines) == setting.replicas:
        return result
    joining = Joining.of(
        measurements.records,
        fleet.engines[-1].replica,
        at_s,
        replicas=len(fleet.engines),
        end_s=setting.end_s,
    )
    return replace(result, joining=joining)


def _traffic(sessions: Sequence[TraceSession], setting: Setting) -> Traffic:
    if setting.open_loop:
        return OpenLoop(sessions, setting.load, setting.end_s, setting.seed, setting.merged)
    live = round(setting.load * setting.replicas)
    return ClosedLoop(sessions, live, setting.seed, setting.merged)

"""Lets an autoscaler's wishes come true: replicas start for minutes, and leave when idle."""

from dataclasses import dataclass, field

from benchmarks.autoscalers.autoscaler import Autoscaler, View
from benchmarks.autoscalers.setting import Setting
from benchmarks.simulator.fleet import Fleet
from benchmarks.simulator.replica_factory import ReplicaFactory
from policies.router import Router
from policies.types import ReplicaId
from policies.victims import Seat, predict_victims

PERIOD_S = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """The target changed."""

    at_s: float
    before: int
    after: int
    reason: str


@dataclass(slots=True)
class Operator:
    """Is called once a second. Each replica is on a node of its own.

    Replicas that start are paid for, and so are those that leave until their requests ended.
    """

    factory: ReplicaFactory
    autoscaler: Autoscaler
    router: Router
    setting: Setting
    changes: list[Change] = field(default_factory=list)
    replica_s: float = 0.0
    _target: int = field(init=False)
    _ready_at_s: list[float] = field(default_factory=list)
    _leaving: set[ReplicaId] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin with what is there from the start."""
        self._target = self.setting.replicas

    def __call__(self, fleet: Fleet, now_s: float) -> None:
        """Do what is due."""
        self.replica_s += len(fleet.engines) + len(self._ready_at_s)
        while self._ready_at_s and self._ready_at_s[0] <= now_s:
            self._ready_at_s.pop(0)
            fleet.join(self.factory.make(), now_s)
        if now_s % PERIOD_S:
            return
        serving = [one for one in fleet.engines if one.replica not in self._leaving]
        seats = tuple(Seat(one.replica, node=one.replica) for one in serving)
        states = [one.state for one in serving]
        view = View(states, seats, len(self._ready_at_s), self._target, self.router)
        wish = self.autoscaler.tick(view, now_s)
        for engine in serving:
            if engine.replica in wish.draining and not engine.draining:
                fleet.drain(engine.replica)
            elif engine.replica not in wish.draining and engine.draining:
                fleet.resume(engine.replica)
        target = min(max(1, wish.replicas), self.setting.max_replicas)
        if target != self._target:
            self.changes.append(Change(now_s, self._target, target, wish.reason))
            self._target = target
        surplus = len(serving) + len(self._ready_at_s) - target
        self._ready_at_s += [now_s + self.setting.start_s] * -surplus
        for _ in range(min(surplus, len(self._ready_at_s))):
            self._ready_at_s.pop()
            surplus -= 1
        for victim in predict_victims(seats, max(0, surplus)):
            self._leaving.add(victim)
            fleet.leave(victim, now_s)


def oscillations(changes: list[Change], within_s: float = 600.0) -> int:
    """Return how often replicas came, went and came within that time."""
    count = 0
    came_at_s: float | None = None
    went = False
    for change in changes:
        if change.after < change.before:
            went = came_at_s is not None
        else:
            count += went and came_at_s is not None and change.at_s - came_at_s <= within_s
            came_at_s, went = change.at_s, False
    return count

"""How many replicas there should be, and who of them drains, from one question to the next."""

from dataclasses import dataclass, replace

from policies.autoscale import AutoscaleState, Wish, on_tick
from policies.autoscale_settings import AutoscaleSettings
from policies.observation import Observation
from policies.types import ReplicaId

ASKED_WITHIN_S = 30.0
"""Without a question for so long Serve scales by something else, and nobody drains."""

LEAVE_S = 60.0
"""How long a replica that was let go may take to be stopped, before it's taken to stay."""


@dataclass(frozen=True, slots=True)
class ScaleQuestion:
    """What Serve knows: who runs, how many should, what it was told to aim at.

    `queued` requests wait in the gateways, since no replica runs or all are full.
    """

    running: frozenset[ReplicaId]
    target: int
    queued: float
    settings: AutoscaleSettings


class Scaling:
    """Remembers what `policies.autoscale` has to; `wish` is its last answer.

    Replicas that were let go drain until Serve stops them. If it stops another in their place,
    that is a surprise.
    """

    def __init__(self) -> None:
        self.wish: Wish | None = None
        self._state: AutoscaleState | None = None
        self._leaving: dict[ReplicaId, float] = {}
        self._asked_at_s = 0.0

    @property
    def draining(self) -> frozenset[ReplicaId]:
        """Those that are to get no more turns."""
        return frozenset(self.wish.draining if self.wish else ()) | self._leaving.keys()

    def is_draining(self, replica: ReplicaId) -> bool:
        """Tell whether a replica is one of those."""
        return replica in self.draining

    def answer(self, asked: ScaleQuestion, now: Observation, now_s: float) -> int:
        """Return how many there should be."""
        before = self._state or AutoscaleState(asked.target)
        wish, self._state = on_tick(
            now, replace(before, target=asked.target), asked.settings, now_s
        )
        self.wish = wish
        self._asked_at_s = now_s
        let_go = before.draining.replicas if before.draining else ()
        if wish.replicas < asked.target:
            self._leaving |= dict.fromkeys(let_go, now_s + LEAVE_S)
        self.expire(now_s)
        return wish.replicas

    def hold(self, asked: ScaleQuestion, why: str, now_s: float) -> int:
        """Return as many as there should be already: how things are can't be told."""
        draining, demands = (self.wish.draining, self.wish.demands) if self.wish else ((), ())
        self.wish = Wish(asked.target, draining, demands, f"stays at {asked.target}: {why}")
        self._asked_at_s = now_s
        return asked.target

    def wake(self, asked: ScaleQuestion, now_s: float) -> int:
        """Return how many there should be while none runs: one, if there's something to do."""
        if asked.target or not asked.queued:
            return self.hold(asked, "none runs", now_s)
        reason = f"0 -> 1: {asked.queued:g} requests wait, and none runs"
        self.wish, self._asked_at_s = Wish(1, (), (), reason), now_s
        self._state = AutoscaleState(1, came_at_s=now_s)
        return 1

    def expire(self, now_s: float) -> None:
        """Let go of what is too old."""
        self._leaving = {one: until_s for one, until_s in self._leaving.items() if now_s < until_s}
        if self.wish and now_s - self._asked_at_s > ASKED_WITHIN_S:
            self.wish = self._state = None

    def gone(self, replica: ReplicaId) -> bool:
        """Note that a replica was stopped, or died; tell whether that is a surprise."""
        return self._leaving.pop(replica, None) is None and bool(self._leaving)

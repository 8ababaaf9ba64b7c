"""How a fleet looked, second after second."""

from collections.abc import Sequence

import numpy as np

from benchmarks.simulator.engine import Engine

_RUNNING_EVERY_S = 60


class FleetSamples:
    """One a second, from `warm_up_s` on."""

    def __init__(self, warm_up_s: float) -> None:
        self._warm_up_s = warm_up_s
        self._dispersions: list[float] = []
        self.replica_s = 0.0
        """Seconds that replicas were there, of all together."""
        self.running: list[list[int]] = []
        """Requests running in each replica, once a minute."""

    def add(self, engines: Sequence[Engine], now_s: float) -> None:
        """Look at the replicas."""
        if now_s < self._warm_up_s:
            return
        self.replica_s += len(engines)
        running = [engine.running for engine in engines]
        mean = sum(running) / len(running)
        if mean:
            self._dispersions.append(float(np.var(running)) / mean)
        if int(now_s) % _RUNNING_EVERY_S == 0:
            self.running.append(running)

    @property
    def dispersion(self) -> float:
        """The variance by the mean of running requests across replicas, averaged over time."""
        return float(np.mean(self._dispersions)) if self._dispersions else 0.0

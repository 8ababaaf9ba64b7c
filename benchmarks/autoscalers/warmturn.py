"""This project's own autoscaling: `policies.autoscale`, as it is."""

import numpy as np

from benchmarks.autoscalers.autoscaler import Target, View
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.turn import Turn
from policies.autoscale import AutoscaleState, Wish, on_tick
from policies.autoscale_settings import AutoscaleSettings
from policies.observation import Observation
from policies.observer import Observer


class Warmturn:
    """Observes, and wishes; shows what it last saw and wished for."""

    observation: Observation
    wish: Wish

    def __init__(
        self, settings: AutoscaleSettings, hardware: Hardware, block_size: int, replicas: int
    ) -> None:
        self._settings = settings
        self._hardware = hardware
        self._state = AutoscaleState(replicas)
        self._observer = Observer(block_size)

    def arrived(self, turn: Turn, now_s: float) -> None:
        """Note a request."""
        request = turn.request
        self._observer.arrived(np.array(request.hashes, np.uint64), request.prompt_tokens, now_s)

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be, and who drains."""
        self._observer.look(view.states, view.router, now_s)
        self.observation = self._observer.observe(
            view.seats, view.states, self._hardware.host_tokens, 0, self._settings, now_s
        )
        self.wish, self._state = on_tick(self.observation, self._state, self._settings, now_s)
        return Target(self.wish.replicas, self.wish.draining, self.wish.reason)

"""This project's own autoscaling: `policies.autoscale`, as it is."""

import numpy as np

from benchmarks.autoscalers.autoscaler import Target, View
from benchmarks.simulator.presets import Hardware
from benchmarks.simulator.turn import Turn
from policies.autoscale import AutoscaleState, on_tick
from policies.demands import AutoscaleSettings, Observation
from policies.fleet_load import LoadWindow, fleet_load
from policies.misses import PromptTokens, PromptWindow
from policies.reuse_curve import ReuseSampler

_LOAD_WINDOW_S = 60.0
_USUAL_WINDOW_S = 300.0
_CURVE_WINDOW_S = 900.0


class Warmturn:
    """Observes, and wishes."""

    def __init__(
        self, settings: AutoscaleSettings, hardware: Hardware, block_size: int, replicas: int
    ) -> None:
        self._settings = settings
        self._hardware = hardware
        self._block_size = block_size
        self._state = AutoscaleState(replicas)
        self._loads = LoadWindow(_LOAD_WINDOW_S)
        self._usual_loads = LoadWindow(_USUAL_WINDOW_S)
        self._prompts = PromptWindow(_USUAL_WINDOW_S)
        self._reuse = ReuseSampler(block_size, _CURVE_WINDOW_S)

    def arrived(self, turn: Turn, now_s: float) -> None:
        """Note a request."""
        request = turn.request
        self._reuse.add(np.array(request.hashes, np.uint64), request.prompt_tokens, now_s)
        self._prompts.add(PromptTokens(first_seen_tokens=request.prompt_tokens), now_s)

    def tick(self, view: View, now_s: float) -> Target:
        """Return how many replicas there should be, and who drains."""
        router = view.router
        load = fleet_load(router.in_flight, router.waiting, self._block_size)
        self._loads.add(load, now_s)
        self._usual_loads.add(load, now_s)
        observation = Observation(
            seats=view.seats,
            busy=frozenset(one.replica for one in view.states if one.running + one.waiting),
            load=self._loads.mean(),
            usual_load=self._usual_loads.mean(),
            prompt_tokens_per_s=self._prompts.total(now_s).prompt_tokens
            / max(_LOAD_WINDOW_S, self._prompts.span_s(now_s)),
            curve=self._reuse.curve(now_s),
            prefill_tokens_per_s=float(
                np.mean([state.prefill_tokens_per_s for state in view.states])
            ),
            gpu_tokens=self._hardware.gpu_tokens,
            # What is in GPU memory is in CPU memory too.
            cache_tokens=max(self._hardware.gpu_tokens, self._hardware.host_tokens),
        )
        wish, self._state = on_tick(observation, self._state, self._settings, now_s)
        return Target(wish.replicas, wish.draining, wish.reason)

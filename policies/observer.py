"""Watches a fleet's traffic, for the autoscaler to look at."""

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from policies.autoscale_settings import AutoscaleSettings
from policies.fleet_load import LoadWindow, fleet_load
from policies.observation import Observation
from policies.reuse_curve import ReuseSampler
from policies.router import Router
from policies.token_window import TokenWindow
from policies.types import ReplicaState
from policies.victims import Seat

LOAD_WINDOW_S = 60.0

SIZES = {"0.25": 0.25, "0.5": 0.5, "1": 1.0, "2": 2.0, "4": 4.0, "unlimited": math.inf}
"""Sizes of memory whose hit ratios are told, as many times what there is."""


class Observer:
    """Is to be told of each prompt, in blocks of `block_size` tokens, and often to look."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._loads = LoadWindow(LOAD_WINDOW_S)
        settings = AutoscaleSettings()
        self._usual_loads = LoadWindow(settings.usual_s)
        self._prompts = TokenWindow(settings.usual_s)
        self._reuse = ReuseSampler(block_size, settings.window_s)

    def arrived(self, hashes: NDArray[np.uint64], prompt_tokens: int, now_s: float) -> None:
        """Note a prompt and the hashes of its full blocks."""
        self._reuse.add(hashes, prompt_tokens, now_s)
        self._prompts.add(prompt_tokens, now_s)

    def look(self, states: Sequence[ReplicaState], router: Router, now_s: float) -> None:
        """Note what is in flight."""
        load = fleet_load(states, router.in_flight, router.waiting, self.block_size)
        self._loads.add(load, now_s)
        self._usual_loads.add(load, now_s)

    def reuse_ratios(self, memory_tokens: int, now_s: float) -> dict[str, float]:
        """Return the hit ratios that SIZES would have given of late; none where no prompt came.

        Nor are there any where no memory is known.
        """
        curve = self._reuse.curve(now_s)
        if not (curve.prompt_tokens and memory_tokens):
            return {}
        return {name: curve.hit_ratio(times * memory_tokens) for name, times in SIZES.items()}

    def observe(
        self,
        seats: tuple[Seat, ...],
        states: Sequence[ReplicaState],
        cpu_tokens: int,
        shared_tokens: int,
        settings: AutoscaleSettings,
        now_s: float,
    ) -> Observation:
        """Return how things are: `states` are of the replicas in `seats`, one at least.

        One replica's CPU memory holds `cpu_tokens`, what is in its GPU memory among them. What is
        seen is of the settings' times; where these change, it begins anew.
        """
        if settings.window_s != self._reuse.window_s:
            self._reuse = ReuseSampler(self.block_size, settings.window_s)
        if settings.usual_s != self._prompts.window_s:
            self._usual_loads = LoadWindow(settings.usual_s)
            self._prompts = TokenWindow(settings.usual_s)
        gpu_tokens = round(fmean(one.total_blocks for one in states)) * self.block_size
        span_s = max(LOAD_WINDOW_S, self._prompts.span_s(now_s))
        return Observation(
            seats=seats,
            busy=frozenset(one.replica for one in states if one.running + one.waiting),
            load=self._loads.mean(),
            usual_load=self._usual_loads.mean(),
            prompt_tokens_per_s=self._prompts.total(now_s) / span_s,
            curve=self._reuse.curve(now_s),
            prefill_tokens_per_s=fmean(one.prefill_tokens_per_s for one in states),
            gpu_tokens=gpu_tokens,
            cache_tokens=max(gpu_tokens, cpu_tokens),
            shared_tokens=shared_tokens,
        )

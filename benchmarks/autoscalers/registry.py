"""Every autoscaler by name, and how to change its settings."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.autoscalers.autoscaler import Autoscaler, Blind, Target, View
from benchmarks.autoscalers.kubernetes import KvUse, QueueLength
from benchmarks.autoscalers.llmd_saturation import LlmdSaturation
from benchmarks.autoscalers.ray_serve import RayServe
from benchmarks.autoscalers.setting import Setting
from benchmarks.autoscalers.warmturn import Warmturn
from policies.autoscale_settings import AutoscaleSettings


class Fixed(Blind):
    """As many as there are: what no autoscaling costs."""

    def __init__(self, replicas: float) -> None:
        self._replicas = int(replicas)

    def tick(self, view: View, now_s: float) -> Target:
        """Return the number."""
        return Target(self._replicas)


PEERS: Mapping[str, Callable[..., Autoscaler]] = {
    "ray-serve": RayServe,
    "kv-use": KvUse,
    "queue-length": QueueLength,
    "llmd-saturation": LlmdSaturation,
}

WARMTURN = "warmturn"

AUTOSCALERS = (WARMTURN, *PEERS)


def make_autoscaler(spec: str, block_size: int, setting: Setting) -> Autoscaler:
    """Make the autoscaler that `name` or `name:setting=number:...` describes.

    Raises ValueError for names and settings that are not known.
    """
    name, *settings = spec.split(":")
    values: dict[str, Any] = {}
    for one in settings:
        key, _, value = one.partition("=")
        values[key] = float(value)
    try:
        if name == WARMTURN:
            most, start_s = setting.max_replicas, setting.start_s
            wanted = AutoscaleSettings(max_replicas=most, start_s=start_s, **values)
            return Warmturn(wanted, setting.hardware, block_size, setting.replicas)
        if name == "fixed":
            return Fixed(**values)
        return PEERS[name](**values)
    except KeyError as unknown:
        msg = f"there is no autoscaler {name}; there are {', '.join(AUTOSCALERS)}"
        raise ValueError(msg) from unknown
    except TypeError as wrong:
        msg = f"{spec}: {wrong}"
        raise ValueError(msg) from wrong

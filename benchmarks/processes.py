"""Which of this machine's services used how much processor time."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import psutil
import ray

from serve_app.router_client import NAMESPACE, RouterClient

SHARED = "shared"
"""The user of processes that work for all applications, as Serve's proxy."""

ENGINE = "VLLM::"
"""How the names of an engine's processes begin."""


class Processes:
    """Those that this process started: applications, each with one router, and Ray."""

    def __init__(self, routers: Mapping[int, str], but: Collection[int]) -> None:
        """Follow applications, named by their routers' processes; those of `but` don't count."""
        self._routers = routers
        self._but = but

    def used_s(self) -> dict[str, float]:
        """Return the processor time used so far, in seconds, by each application and by SHARED.

        vLLM's engines don't count: two processes of such an engine wait for each other at full
        speed, so that what they use says nothing.
        """
        used_s = defaultdict[str, float](float)
        for one in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                name = " ".join(one.cmdline())
                if one.pid not in self._but and not name.startswith(ENGINE):
                    times = one.cpu_times()
                    used_s[self._user(one.pid, name)] += times.user + times.system
        return used_s

    def since(self, before_s: Mapping[str, float]) -> dict[str, float]:
        """Return what was used since there was so much."""
        return {user: used_s - before_s.get(user, 0.0) for user, used_s in self.used_s().items()}

    def _user(self, pid: int, name: str) -> str:
        for app in self._routers.values():
            if name.startswith(f"ray::ServeReplica:{app}:"):
                return app
        return self._routers.get(pid, SHARED)


def routers(apps: Iterable[str]) -> dict[int, str]:
    """Return the process of each application's router."""
    return {_pid(RouterClient(app).name): app for app in apps}


def _pid(actor: str) -> int:
    handle = ray.get_actor(actor, namespace=NAMESPACE)
    pid: Any = ray.get(handle.__ray_call__.remote(lambda _: os.getpid()))
    return int(pid)

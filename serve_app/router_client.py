"""The way to the router actor, from gateways and replicas."""

import asyncio
from importlib.metadata import version
from typing import Any, Protocol

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorDiedError, RayError

from serve_app.router_actor import RouterActor

NAMESPACE = "warmturn"
MAX_CONCURRENCY = 10_000
"""Calls that the actor has open at a time: mostly requests that wait for a replica."""


def actor_name(app: str) -> str:
    """Return the name of an application's router actor."""
    return f"router:{app}:{version('warmturn')}"


class RouterSilent(Exception):
    """The router actor gave no answer in time; `str()` says how."""


class RouterLike(Protocol):
    """What calls the router actor; RouterClient is the real one."""

    async def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        """Return what the actor's method returns, as RouterClient.call does."""


class RouterClient:
    """Calls one application's router actor, which any of its processes starts if there is none.

    Ray restarts the actor when its process or node dies, with nothing known. It outlives the
    application's processes, so that a new deployment finds it, and ends itself when none is left.
    """

    def __init__(self, app: str) -> None:
        self.name = actor_name(app)
        self._actor: ActorHandle[RouterActor] | None = None

    async def call(self, method: str, *args: Any, timeout_s: float) -> Any:
        """Return what the actor's method returns.

        Raises:
            RouterSilent: it did not in `timeout_s`, or the actor is gone or restarting.
        """
        try:
            async with asyncio.timeout(timeout_s):
                actor = self._actor or await asyncio.to_thread(self._find)
                self._actor = actor
                return await getattr(actor, method).remote(*args)
        except TimeoutError as error:
            raise RouterSilent(f"no answer in {timeout_s:g} s") from error
        except ActorDiedError as error:
            self._actor = None
            raise RouterSilent("the router actor died") from error
        except RayError as error:
            raise RouterSilent(type(error).__name__) from error

    def tell(self, method: str, *args: Any) -> None:
        """Call a method whose answer nobody waits for; does nothing if the actor is unknown."""
        if self._actor is not None:
            getattr(self._actor, method).remote(*args)

    def _find(self) -> "ActorHandle[RouterActor]":
        actor: Any = ray.remote(RouterActor)
        found: ActorHandle[RouterActor] = actor.options(
            name=self.name,
            namespace=NAMESPACE,
            get_if_exists=True,
            lifetime="detached",
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=MAX_CONCURRENCY,
        ).remote()
        return found

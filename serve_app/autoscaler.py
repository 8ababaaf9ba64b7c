"""Serve's autoscaling policy of the engine deployment: the router decides, this asks it.

It runs in Serve's controller, which calls it ten times a second and must not wait. So a question is
under way while the target stays as it is, until there is an answer.
"""

import logging
import time
from concurrent.futures import Future
from typing import Any

import ray
from ray.serve.config import AutoscalingContext

from policies.types import ReplicaId
from serve_app.config import autoscale_settings
from serve_app.router_client import NAMESPACE, actor_name
from serve_app.scaling import ScaleQuestion

logger = logging.getLogger("ray.serve")

PERIOD_S = 2.0
TIMEOUT_S = 10.0
COMPLAIN_S = 60.0


class CacheAutoscaler:
    """Scales by what would be cached; `policy_kwargs` are `AutoscaleSettings` without the bounds.

    Bounds are Serve's `min_replicas` and `max_replicas`. It never raises, as Serve would deploy
    nothing then: what goes wrong is logged, and changes nothing.
    """

    def __init__(self, **settings: Any) -> None:
        self._given = settings
        self._asked_at_s = self._complained_at_s = float("-inf")
        self._pending: Future[int] | None = None
        self._actor: Any = None

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Return how many replicas there should be."""
        target = ctx.target_num_replicas
        try:
            return self._decide(ctx), {}
        except Exception as error:
            self._actor = None
            if time.monotonic() - self._complained_at_s > COMPLAIN_S:
                self._complained_at_s = time.monotonic()
                logger.error("autoscaling stands still at %d replicas: %s", target, error)
            return target, {}

    def _decide(self, ctx: AutoscalingContext) -> int:
        now_s = time.monotonic()
        if self._pending and self._pending.done():
            pending, self._pending = self._pending, None
            return pending.result()
        if now_s - self._asked_at_s > (TIMEOUT_S if self._pending else PERIOD_S):
            self._asked_at_s, self._pending = now_s, None
            self._pending = self._ask(ctx)
        return ctx.target_num_replicas

    def _ask(self, ctx: AutoscalingContext) -> Future[int]:
        bounds = {
            "min_replicas": ctx.capacity_adjusted_min_replicas,
            "max_replicas": ctx.capacity_adjusted_max_replicas,
        }
        question = ScaleQuestion(
            running=frozenset(ReplicaId(one.unique_id) for one in ctx.running_replicas),
            target=ctx.target_num_replicas,
            queued=ctx.total_queued_requests,
            settings=autoscale_settings(self._given | bounds),
        )
        assert ctx.app_name is not None
        return self._send(ctx.app_name, question)

    def _send(self, app: str, question: ScaleQuestion) -> Future[int]:
        if self._actor is None:
            self._actor = ray.get_actor(actor_name(app), namespace=NAMESPACE)
        answer: Future[int] = self._actor.scale.remote(question).future()
        return answer

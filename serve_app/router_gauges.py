"""How the router stands at the moment it is scraped."""

from collections.abc import Iterator, Sequence

from policies.candidate import pinned_blocks, requests
from policies.fleet_load import dispersion_ratio
from policies.observer import Observer
from policies.residency import NO_RESIDENTS, Residents
from policies.router import Router
from policies.types import ReplicaState
from serve_app import metrics
from serve_app.metric import Metric, Sample
from serve_app.scaling import Scaling


def gauges(states: Sequence[ReplicaState], router: Router, now_s: float) -> Iterator[Sample]:
    """Yield what is known of sessions, blocks and waiting requests, and of each replica."""
    busy = [requests(one, router.in_flight.load(one.replica)) for one in states]
    residents = router.sessions.residents(router.in_flight.sessions(), now_s)
    yield _sample(metrics.SESSIONS, len(router.sessions))
    yield _sample(metrics.INDEX_BLOCKS, len(router.index))
    yield _sample(metrics.SHARED_BLOCKS, router.index.shared_blocks)
    yield _sample(metrics.WAITING_REQUESTS, len(router.waiting) - router.waiting.held)
    yield _sample(metrics.HELD_REQUESTS, router.waiting.held)
    yield _sample(metrics.RUNNING_SESSIONS, len(router.admission))
    limit = router.admission.limit
    yield _sample(metrics.LATE_RATIO, limit.late_ratio(now_s) or 0.0)
    if limit.sessions is not None:
        yield _sample(metrics.SESSION_LIMIT, limit.sessions)
    yield _sample(metrics.REPLICAS, len(states))
    yield _sample(metrics.DISPERSION, dispersion_ratio(busy))
    for state in states:
        yield from _replica(state, router, residents.get(state.replica, NO_RESIDENTS))


def reuse_samples(observer: Observer, memory_tokens: int, now_s: float) -> Iterator[Sample]:
    """Yield what memories of other sizes would have given, if any prompt came."""
    for size, ratio in observer.reuse_ratios(memory_tokens, now_s).items():
        yield _sample(metrics.REUSE_RATIO, ratio, size)


def scaling_samples(scaling: Scaling) -> Iterator[Sample]:
    """Yield what autoscaling wishes for, if Serve asked yet."""
    if scaling.wish:
        yield _sample(metrics.WISHED_REPLICAS, scaling.wish.replicas)
        for demand in scaling.wish.demands:
            yield _sample(metrics.DEMANDED_REPLICAS, demand.replicas, demand.name)


def _replica(state: ReplicaState, router: Router, residents: Residents) -> Iterator[Sample]:
    name, load = state.replica, router.in_flight.load(state.replica)
    yield _sample(metrics.REPLICA_SYNCED, state.synced, name)
    yield _sample(metrics.REPLICA_DRAINING, state.draining, name)
    yield _sample(metrics.REPLICA_REQUESTS, requests(state, load), name)
    yield _sample(metrics.REPLICA_RESIDENT_SESSIONS, residents.sessions, name)
    yield _sample(metrics.REPLICA_UNCACHED_TOKENS, load.uncached_tokens, name)
    yield _sample(metrics.REPLICA_PINNED, pinned_blocks(state, load) / state.total_blocks, name)
    yield _sample(metrics.REPLICA_HELD_BLOCKS, router.index.held_blocks(name), name)


def _sample(metric: Metric, value: float, *labels: str) -> Sample:
    return Sample(metric.name, labels, float(value))

"""What a replica would cost a request, in expected seconds: one function for each cause."""

from collections.abc import Callable, Mapping

from policies.candidate import Candidate
from policies.scorers.kv_locality import kv_locality
from policies.scorers.kv_pressure import kv_pressure
from policies.scorers.queue_depth import queue_depth
from policies.tunables import Tunables

Scorer = Callable[[Candidate, Tunables], float]

SCORERS: Mapping[str, Scorer] = {
    "kv_locality": kv_locality,
    "queue_depth": queue_depth,
    "kv_pressure": kv_pressure,
}

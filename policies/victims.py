"""Which replicas Ray stops when a deployment gets smaller: it can't be told, but it is known."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from policies.types import ReplicaId


@dataclass(frozen=True, slots=True)
class Seat:
    """A running replica and its node, on which `node_replicas` of any deployment run."""

    replica: ReplicaId
    node: str
    node_replicas: int = 1
    is_head_node: bool = False


def predict_victims(seats: Sequence[Seat], count: int) -> tuple[ReplicaId, ...]:
    """Return the `count` replicas that are stopped first, of `seats` from the oldest on.

    Ray 2.60 (`DeploymentScheduler._get_replicas_to_stop`) empties node by node: the head node last,
    others by how many replicas they have, and of equal ones first that of the oldest replica. Only
    on one node the newest goes first, so with a replica a node the oldest does.
    """
    by_node: defaultdict[str, list[Seat]] = defaultdict(list)
    for seat in seats:
        by_node[seat.node].append(seat)
    nodes = sorted(by_node.values(), key=lambda node: (node[0].is_head_node, node[0].node_replicas))
    order = [seat.replica for node in nodes for seat in reversed(node)]
    return tuple(order[:count])

"""Whom Ray stops, asked of its own scheduler: no replica runs for this."""

from typing import Any, cast

import pytest
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve._private.deployment_scheduler import (
    DeploymentScheduler,
    SpreadDeploymentSchedulingPolicy,
)

from policies.types import ReplicaId
from policies.victims import Seat, predict_victims


class Cluster:
    """What the scheduler asks of nodes: they have no labels."""

    def get_node_labels(self, _node_id: str) -> dict[str, str]:
        return {}


@pytest.mark.parametrize(
    "nodes",
    [
        ["n1", "n2", "n3"],
        ["head", "n1", "n2"],
        ["n1", "n2", "n1", "n3"],
        ["n2", "n1", "n1", "n2", "n3"],
        ["head", "n1", "n1", "n2", "head", "n2", "n3"],
    ],
)
def test_the_same_replicas(nodes: list[str]) -> None:
    """For any number of replicas that are to go, with the oldest replica's node named first."""
    deployment = DeploymentID("engine", "app")
    scheduler = DeploymentScheduler(cast("Any", Cluster()), "head", cast("Any", None))
    scheduler.on_deployment_created(deployment, SpreadDeploymentSchedulingPolicy())
    for number, node in enumerate(nodes):
        scheduler.on_replica_running(ReplicaID(f"r{number}", deployment), node)
    seats = [
        Seat(ReplicaId(f"r{number}"), node, nodes.count(node), is_head_node=node == "head")
        for number, node in enumerate(nodes)
    ]
    for count in range(1, len(nodes) + 1):
        stopped = scheduler._get_replicas_to_stop(deployment, count)
        assert {one.unique_id for one in stopped} == set(predict_victims(seats, count))

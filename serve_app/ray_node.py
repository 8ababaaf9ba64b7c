"""Where this process runs."""

from typing import Any

import ray

from serve_app.replica_report import Node

HEAD_RESOURCE = "node:__internal_head__"


def this_node() -> Node:
    """Return the node of this process in its Ray cluster."""
    node = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    heads = [one["NodeID"] for one in nodes if HEAD_RESOURCE in one["Resources"]]
    return Node(node, node in heads)

"""Every policy by name, with what it ships with, and how to change that."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from benchmarks.peers.dynamo import Dynamo, DynamoAgentic
from benchmarks.peers.llmd_sticky import LlmdSticky
from benchmarks.peers.llmd_weighted import LlmdWeighted
from benchmarks.peers.oracle import Oracle
from benchmarks.peers.policy import Policy
from benchmarks.peers.production_stack import ProductionStack
from benchmarks.peers.ray_prefix import RayPrefix
from benchmarks.peers.session_hash import SessionHash
from benchmarks.peers.sglang import Sglang
from benchmarks.peers.spreading import PowerOfTwo, RandomChoice, RoundRobin
from benchmarks.peers.warmturn import make_warmturn

POLICIES: Mapping[str, Callable[..., Policy]] = {
    "warmturn": make_warmturn,
    "random": RandomChoice,
    "round-robin": RoundRobin,
    "power-of-two": PowerOfTwo,
    "session-hash": SessionHash,
    "ray-prefix": RayPrefix,
    "sglang": Sglang,
    "llmd-weighted": LlmdWeighted,
    "llmd-sticky": LlmdSticky,
    "dynamo": Dynamo,
    "dynamo-agentic": DynamoAgentic,
    "production-stack": ProductionStack,
    # Set as a sweep of each one's weight, at 12 sessions a replica of part `tune`, found best.
    "llmd-weighted-tuned": partial(LlmdWeighted, prefix=5.0),  # of 2, 3, 5
    "llmd-sticky-tuned": partial(LlmdSticky, affinity_threshold=0.5),  # of 0.8, 0.5; penalty 5 s
    "production-stack-tuned": partial(ProductionStack, beta=0.3),  # of 1, 0.3, 0.1
    "oracle": Oracle,
    "pooled-oracle": Oracle,
}

ORACLE = "oracle"
POOLED_ORACLE = "pooled-oracle"


def make_policy(spec: str, rng: Random) -> Policy:
    """Make the policy that `name` or `name:setting=number:...` describes.

    Raises ValueError for names and settings that are not known.
    """
    name, *settings = spec.split(":")
    if name not in POLICIES:
        msg = f"there is no policy {name}; there are {', '.join(POLICIES)}"
        raise ValueError(msg)
    values: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        values[key] = float(value)
    try:
        return POLICIES[name](rng, **values)
    except TypeError as wrong:
        msg = f"{spec}: {wrong}"
        raise ValueError(msg) from wrong

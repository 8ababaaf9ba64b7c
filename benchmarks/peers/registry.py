"""Every policy by name, with what it ships with, and how to change that."""

from collections.abc import Callable, Mapping
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
    "oracle": Oracle,
}

ORACLE = "oracle"


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

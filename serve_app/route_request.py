"""What travels between a gateway and the router actor about one turn, and on to the replica."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from policies.autoscale import Wish
from policies.prefix_break import PrefixBreak
from policies.tunables import Tunables
from policies.types import ReplicaId, RequestId, Rule, SessionId


@dataclass(slots=True)
class RouteRequest:
    """A turn on its way to a replica; a gateway's KVRouter fills in `placement`.

    `http_id` is the request id that the client sees, `client` the client's own name. `hashes` are
    of the prompt's full blocks of `block_size` tokens; none where the prompt could not be rendered,
    as `not_rendered` says, and `prompt_tokens` is an estimate then.
    """

    request: RequestId
    http_id: str
    session: SessionId | None
    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    prompt_tokens: int = 1
    block_size: int = 1
    prefix_break: PrefixBreak | None = None
    not_rendered: str | None = None
    placement: "Placement | None" = None
    rejected_by: set[ReplicaId] = field(default_factory=set)
    """Replicas that had no place for it after all, since it was last sent."""
    rejections: int = 0
    """How often that was so."""
    client: str | None = None
    sent: "SentBody | None" = None
    """For the router to record; it is left out once that has it."""


@dataclass(frozen=True, slots=True)
class SentBody:
    """What a client sent, and to which path."""

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a turn goes. `session` may have been found by its lineage.

    `expected_cached_tokens` and `why` are None where nobody knew: the router did not answer in
    time.
    """

    replica: ReplicaId
    session: SessionId | None
    expected_cached_tokens: int | None
    why: "Why | None" = None


class TurnedAway(Exception):
    """The router refused a turn; `str()` says why."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why the router placed a turn there, for who follows a request.

    `waited_s` is how long it waited for room; None where that is forgotten.
    """

    rule: Rule
    reason: str
    expected_ttft_s: float
    waited_s: float | None


Places = Mapping[ReplicaId, int]
"""Replicas that a gateway can reach, and how many requests each may have."""


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """Where turns are recorded: on which host, in which file; how many, and why the last was not.

    `error` is None once writing works again.
    """

    host: str
    path: str
    turns: int
    error: str | None


@dataclass(frozen=True, slots=True)
class GatewaySeat:
    """A gateway, by the id of its Serve replica, and the node that it runs on.

    `started_at_s` is by that node's clock, in seconds since 1970.
    """

    gateway: str
    node: str
    started_at_s: float


@dataclass(frozen=True, slots=True)
class RouterStatus:
    """How the router stands. `started_s_ago` tells a new one from one that lost touch.

    `blocks` are those known to be anywhere, `shared_blocks` those of them in the shared tier.
    `waiting` requests wait for a replica or their session's place, of which there are
    `session_limit`; None while as many sessions may run as come. `autoscaling` is None where Serve
    does not ask, and `record` where nothing is recorded.
    """

    block_size: int | None
    replicas: int
    synced_replicas: int
    sessions: int
    blocks: int
    shared_blocks: int
    waiting: int
    running_sessions: int
    session_limit: int | None
    started_s_ago: float
    tunables: Tunables
    autoscaling: Wish | None
    record: RecordStatus | None = None

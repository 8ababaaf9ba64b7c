"""Short ways to say what a test is about, with everything else ordinary."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from policies.block_hash import block_contents, hash_blocks, root_hash
from policies.candidate import Candidate
from policies.in_flight import Load
from policies.kv_events import EngineHash, Stored
from policies.match import Match
from policies.releases import Release
from policies.residency import Residents
from policies.types import (
    BlockHash,
    Booking,
    ReplicaId,
    ReplicaState,
    Request,
    RequestId,
    SessionId,
    Tier,
)

BLOCK_SIZE = 4
ROOT = root_hash("model", BLOCK_SIZE)


def make_tokens(*blocks: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the tokens of blocks; a number stands for a block of its own tokens."""
    return np.array([b * BLOCK_SIZE + i for b in blocks for i in range(BLOCK_SIZE)], np.uint32)


def make_hashes(*blocks: int) -> list[BlockHash]:
    """Return the hashes of a prompt of these blocks."""
    return hash_blocks(ROOT, make_tokens(*blocks), BLOCK_SIZE)


def make_stored(
    *blocks: int, names: list[int], parent: int | None = None, tier: Tier = Tier.GPU
) -> Stored:
    """Return the event that stores these blocks under these names, after `parent`."""
    contents = block_contents(make_tokens(*blocks), BLOCK_SIZE)
    follows = None if parent is None else EngineHash(parent)
    return Stored(tier, ROOT, follows, [EngineHash(name) for name in names], contents)


def make_state(replica: str = "r1", **changes: Any) -> ReplicaState:
    """Return an idle replica of 1,000 blocks that prefills 1,000 tokens/s."""
    fields: dict[str, Any] = {
        "replica": ReplicaId(replica),
        "generation": 1,
        "total_blocks": 1000,
        "free_blocks": 1000,
        "running": 0,
        "waiting": 0,
        "max_requests": 16,
        "prefill_tokens_per_s": 1000.0,
        "restore_tokens_per_s": 10_000.0,
        "fetch_tokens_per_s": 5000.0,
        "hold_s": 10.0,
    }
    return ReplicaState(**fields | changes)


def make_request(request: str = "q1", session: str | None = "s1", **changes: Any) -> Request:
    """Return a request of 1,000 tokens in 100 blocks of 10 that arrived at 0 s."""
    fields: dict[str, Any] = {
        "request": RequestId(request),
        "session": None if session is None else SessionId(session),
        "hashes": [BlockHash(i) for i in range(100)],
        "prompt_tokens": 1000,
        "block_size": 10,
        "arrived_at_s": 0.0,
    }
    return Request(**fields | changes)


def make_candidate(
    replica: str = "r1",
    *,
    gpu: int = 0,
    cpu: int = 0,
    shared: int = 0,
    load: Load | None = None,
    residents: Residents | None = None,
    session_requests: int = 0,
    releases: Sequence[Release] = (),
    shared_ratio: float = 0.0,
    request: Request | None = None,
    **state: Any,
) -> Candidate:
    """Return a candidate that holds `gpu`, `cpu` and `shared` blocks of the prompt."""
    return Candidate(
        request=request or make_request(),
        state=make_state(replica, **state),
        match=Match(gpu, cpu, shared),
        load=load or Load(),
        residents=residents or Residents(),
        session_requests=session_requests,
        releases=releases,
        shared_ratio=shared_ratio,
    )


def make_booking(
    request: str = "q1",
    replica: str = "r1",
    *,
    session: str | None = "s1",
    uncached_tokens: int = 100,
    fetched_tokens: int = 0,
    blocks: int = 10,
    cold: bool = False,
    parked: bool = False,
) -> Booking:
    """Return a booking of 100 tokens and 10 blocks."""
    return Booking(
        request=RequestId(request),
        session=None if session is None else SessionId(session),
        replica=ReplicaId(replica),
        uncached_tokens=uncached_tokens,
        fetched_tokens=fetched_tokens,
        blocks=blocks,
        cold=cold,
        parked=parked,
    )

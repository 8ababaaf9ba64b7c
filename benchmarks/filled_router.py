"""A router whose index, sessions and replicas are as large as a service's after a while."""

import tracemalloc
from dataclasses import dataclass
from itertools import count

import numpy as np

from policies.block_hash import Tokens, block_contents, root_hash
from policies.kv_events import EngineHash, EventBatch, Stored
from policies.router import Router
from policies.tunables import Tunables
from policies.types import BlockHash, ReplicaId, ReplicaState, SessionId, Tier

EVENT_BLOCKS = 512
"""Blocks in one event: a prefill step of 8,192 tokens."""

SESSIONS_PER_REPLICA = 20
VOCABULARY = 150_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large it is, and how long the prompt that it is asked about."""

    prompt_tokens: int = 100_000
    block_size: int = 16
    replicas: int = 64
    other_blocks: int = 1_000_000


class FilledRouter:
    """A router, and engines that fill its index."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self.sizes = sizes
        self.router = Router(Tunables())
        self.root = root_hash("model", sizes.block_size)
        self.states = [_state(ReplicaId(f"replica-{i}")) for i in range(sizes.replicas)]
        self._rng = np.random.default_rng(seed)
        self._names = count(1 << 62)  # as large as real names, so that they take as much memory
        self._sequences = [0] * sizes.replicas

    def tokens(self, blocks: int) -> Tokens:
        """Return random tokens for some blocks."""
        return self._rng.integers(0, VOCABULARY, blocks * self.sizes.block_size, np.uint32)

    def store(self, replica: int, tokens: Tokens) -> None:
        """Let a replica store a prompt, in one batch of events."""
        step = EVENT_BLOCKS * self.sizes.block_size
        events: list[Stored] = []
        parent: EngineHash | None = None
        for start in range(0, len(tokens), step):
            contents = block_contents(tokens[start : start + step], self.sizes.block_size)
            names = [EngineHash(next(self._names)) for _ in contents]
            events.append(Stored(Tier.GPU, self.root, parent, names, contents))
            parent = names[-1]
        sequence = self._sequences[replica]
        self._sequences[replica] += 1
        batch = EventBatch(self.states[replica].replica, 0, sequence, events)
        assert self.router.index.apply(batch, 0.0)

    def start_sessions(self) -> None:
        """Let sessions live on all replicas."""
        for number in range(self.sizes.replicas * SESSIONS_PER_REPLICA):
            session, home = SessionId(f"session-{number}"), self.states[number % len(self.states)]
            self.router.sessions.start_turn(session, home.replica, [BlockHash(number)], 1, 0.0)
            self.router.sessions.end_turn(session, 0.0)

    def fill(self) -> float:
        """Give each replica its share of the other blocks; return the bytes that a block takes."""
        share = self.sizes.other_blocks // self.sizes.replicas
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for replica in range(self.sizes.replicas):
            self.store(replica, self.tokens(share))
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        return taken / len(self.router.index)


def _state(replica: ReplicaId) -> ReplicaState:
    return ReplicaState(
        replica=replica,
        generation=0,
        total_blocks=30_000,
        free_blocks=20_000,
        running=0,
        waiting=0,
        max_requests=64,
        prefill_tokens_per_s=20_000.0,
        restore_tokens_per_s=350_000.0,
        fetch_tokens_per_s=140_000.0,
        hold_s=10.0,
    )

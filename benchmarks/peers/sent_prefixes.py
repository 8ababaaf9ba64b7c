"""What a router without events believes that replicas hold: all that it ever sent them."""

from collections.abc import Mapping, Sequence

from benchmarks.simulator.held_prefix import held_end
from policies.types import BlockHash, ReplicaId


class SentPrefixes:
    """Blocks of the prompts that each replica was sent, and how many tokens were new to each."""

    def __init__(self) -> None:
        self._blocks: dict[ReplicaId, set[BlockHash]] = {}
        self.new_tokens: dict[ReplicaId, int] = {}

    def match(self, prompt: Sequence[BlockHash], replica: ReplicaId) -> int:
        """Return how many blocks of a prompt's beginning a replica was sent."""
        return held_end(prompt, self._blocks.get(replica, ()))

    def matches(
        self, prompt: Sequence[BlockHash], replicas: Sequence[ReplicaId]
    ) -> Mapping[ReplicaId, int]:
        """Return `match` of several replicas."""
        return {replica: self.match(prompt, replica) for replica in replicas}

    def add(self, prompt: Sequence[BlockHash], replica: ReplicaId, block_size: int) -> None:
        """Note that a replica was sent a prompt."""
        held = self._blocks.setdefault(replica, set())
        before = len(held)
        held.update(prompt[self.match(prompt, replica) :])
        new = (len(held) - before) * block_size
        self.new_tokens[replica] = self.new_tokens.get(replica, 0) + new

"""A recorded coding-agent session: what it asked, how much came back, and how long it paused."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One prompt, how much came back, and the pause before it."""

    hash_ids: tuple[range, ...]
    """The prompt's full blocks, in runs; equal ids in one scope are equal blocks."""

    prompt_tokens: int
    output_tokens: int
    think_s: float


Step = tuple[TraceRequest, ...]
"""Requests that are sent together, each after its own pause."""


@dataclass(frozen=True, slots=True)
class TraceSession:
    """A session's steps in their order: the next one comes when all of the last were answered.

    Block ids mean the same in all sessions of one `scope`. The first `shared_blocks` of the first
    prompt are equal to those of every session with the same `tool_tokens` and `system_tokens`, and
    blocks with ids from `common_below` on are of one session alone.
    """

    session: str
    scope: str
    block_size: int
    tool_tokens: int
    system_tokens: int
    steps: tuple[Step, ...]
    shared_blocks: int = 0
    common_below: int = 0
    bursts: frozenset[int] | None = None
    """The numbers of the steps that are bursts of its subagents; None unless it is thick."""

    @property
    def own_steps(self) -> Sequence[int]:
        """The numbers of the steps that are not bursts."""
        steps, bursts = range(len(self.steps)), self.bursts
        return [number for number in steps if number not in bursts] if bursts else steps

    @property
    def requests(self) -> list[TraceRequest]:
        """The first request of each step: the session without what ran beside it."""
        return [step[0] for step in self.steps]


def common_blocks(first: Sequence[range], second: Sequence[range]) -> int:
    """Return how many blocks two prompts have in common from their beginning."""
    common = 0
    for one, other in zip(first, second, strict=False):
        if one.start != other.start:
            return common
        common += min(len(one), len(other))
        if len(one) != len(other):
            return common
    return common

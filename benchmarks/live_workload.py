"""Which sessions a live replay has, as many and as long as was asked and the model allows."""

from dataclasses import dataclass
from itertools import islice

from benchmarks.live_sessions import Pace, Script, from_trace, made_up
from benchmarks.trace_session import TraceSession

LEAST_TURNS = 2
"""A recorded session of which fewer fit the model says nothing about reuse."""


class WorkloadError(Exception):
    """Why there is nothing to replay."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is replayed: recorded sessions, or made-up ones where none are given."""

    sessions: int
    turns: int
    seed: int
    pace: Pace
    recorded: list[TraceSession] | None
    tokens_per_block: int

    def scripts(self, context_tokens: int) -> list[Script]:
        """Return the sessions, cut to what the model takes; WorkloadError if too few are left."""
        if self.recorded is None:
            drawn = iter(made_up(self.sessions, self.turns, self.pace, self.seed))
            least_turns = 1
        else:
            drawn = from_trace(
                self.recorded, self.turns, self.tokens_per_block, self.pace, self.seed
            )
            least_turns = min(LEAST_TURNS, self.turns)
        cut = (script.fitting(context_tokens) for script in drawn)
        found = list(islice((one for one in cut if len(one.turns) >= least_turns), self.sessions))
        if len(found) < self.sessions:
            fit = f"only {len(found)} sessions fit a context of {context_tokens} tokens"
            raise WorkloadError(f"{fit}; see --tokens-per-block")
        return found

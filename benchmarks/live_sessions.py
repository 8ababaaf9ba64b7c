"""What the sessions of a live replay will say, made up or taken from a trace.

Everything is drawn before anything is sent, so one seed means the same sessions for every router.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from random import Random

from benchmarks.trace_session import TraceSession
from policies.types import SessionId

TOKEN_IDS = range(1000, 30_000)
"""Ids that are ordinary tokens in every vocabulary we know."""

SYSTEM_TOKENS = 600
FIRST_TOKENS = 300
TURN_TOKENS = 150
SPREAD = 0.6
"""Sigma of the log-normal lengths, whose medians stand above."""
ANSWER_TOKENS = (16, 48)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request: what is said, after which pause, and how long the answer is to be."""

    think_s: float
    """From the last answer's end; for the first turn from the replay's start."""
    tokens: list[int]
    answer_tokens: int
    extends: bool
    """The tokens follow the session's last prompt and answer; else they are the whole prompt."""


@dataclass(frozen=True, slots=True)
class Script:
    """A session's turns, sent one after another."""

    session: SessionId
    turns: list[Turn]

    def fitting(self, context_tokens: int) -> "Script":
        """Return the script up to the first turn whose prompt and answer would be longer."""
        turns: list[Turn] = []
        length = 0
        for turn in self.turns:
            length = len(turn.tokens) + turn.answer_tokens + (length if turn.extends else 0)
            if length > context_tokens:
                break
            turns.append(turn)
        return replace(self, turns=turns)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast sessions go."""

    ramp_s: float
    """The sessions start at random within so many seconds."""
    think_s: float
    """The mean pause between an answer and the next turn, exponential; not for traces."""
    think_scale: float
    """What a trace's pauses are multiplied by."""
    max_think_s: float
    """No pause is longer."""


def made_up(sessions: int, turns: int, pace: Pace, seed: int) -> list[Script]:
    """Return sessions that share a system prompt; each turn extends the last one's answer."""
    rng = Random(seed)  # noqa: S311  # not for secrets
    system = _tokens(rng, SYSTEM_TOKENS)

    def turn(number: int) -> Turn:
        first = number == 0
        length = round(rng.lognormvariate(math.log(FIRST_TOKENS if first else TURN_TOKENS), SPREAD))
        said = _tokens(rng, max(1, length))
        return Turn(
            think_s=_pause(rng, pace, first=first),
            tokens=system + said if first else said,
            answer_tokens=rng.randint(*ANSWER_TOKENS),
            extends=not first,
        )

    return [
        Script(SessionId(f"live-{seed}-{number}"), [turn(one) for one in range(turns)])
        for number in range(sessions)
    ]


def from_trace(
    recorded: Sequence[TraceSession], turns: int, tokens_per_block: int, pace: Pace, seed: int
) -> Iterator[Script]:
    """Yield the recorded sessions in random order, their prompts and answers scaled down.

    A block of the trace becomes `tokens_per_block` tokens, a function of its id. Where ids mean
    something within one session only, the leading blocks that hold tools and system prompt are
    taken as equal if both have the same lengths. A prompt's last, partial block is left out.
    Prompts are what the trace says, whatever the model answers.
    """
    rng = Random(seed)  # noqa: S311  # not for secrets
    for session in rng.sample(recorded, len(recorded)):
        names = _block_names(session)
        scale = tokens_per_block / session.block_size
        said: list[Turn] = []
        for request in session.requests[:turns]:
            blocks = chain.from_iterable(request.hash_ids)
            keys = [names.get(block, f"{session.scope} {block}") for block in blocks]
            think_s = min(request.think_s * pace.think_scale, pace.max_think_s)
            said.append(
                Turn(
                    think_s=think_s if said else rng.uniform(0, pace.ramp_s),
                    tokens=[token for key in keys for token in _tokens_of(key, tokens_per_block)],
                    answer_tokens=max(1, round(request.output_tokens * scale)),
                    extends=False,
                )
            )
        yield Script(SessionId(f"live-{seed}-{session.session}"), said)


def _block_names(session: TraceSession) -> dict[int, str]:
    """Return names that sessions share for the first prompt's blocks of tools and system prompt."""
    shared_blocks = (session.tool_tokens + session.system_tokens) // session.block_size
    first = chain.from_iterable(run for one in session.requests[:1] for run in one.hash_ids)
    prefix = f"{session.tool_tokens}+{session.system_tokens}"
    return {
        block: f"{prefix} {number}"
        for number, block in zip(range(shared_blocks), first, strict=False)
    }


def _pause(rng: Random, pace: Pace, *, first: bool) -> float:
    if first:
        return rng.uniform(0, pace.ramp_s)
    return min(rng.expovariate(1.0) * pace.think_s, pace.max_think_s)


def _tokens(rng: Random, length: int) -> list[int]:
    return rng.choices(TOKEN_IDS, k=length)


def _tokens_of(key: str, length: int) -> list[int]:
    return _tokens(Random(key), length)  # noqa: S311  # not for secrets

"""Changes to recorded sessions: what fits a model, what is shared, bursts, what is set aside."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from hashlib import blake2b
from random import Random

from benchmarks.trace_session import Step, TraceRequest, TraceSession


class Part(StrEnum):
    """All sessions, those to tune a policy by, or the third that is kept for judging it."""

    ALL = "all"
    TUNE = "tune"
    JUDGE = "judge"


_BURST_EVERY_STEPS = 4
_BURST_TOKENS = 1024
_FIRST_BURST_ID = 1 << 40
"""Above any id in a trace."""


def part_of(sessions: Iterable[TraceSession], part: Part) -> list[TraceSession]:
    """Return the sessions of a part; which one a session is in depends on its name alone."""
    return [one for one in sessions if part in (Part.ALL, _part(one.session))]


def _part(session: str) -> Part:
    first_byte = blake2b(session.encode(), digest_size=8).digest()[0]
    return Part.TUNE if first_byte % 3 else Part.JUDGE


def fit(
    sessions: Iterable[TraceSession], max_context_tokens: int, max_think_s: float
) -> list[TraceSession]:
    """Leave out requests longer than the model's context, and the rest of longer pauses."""
    fitted = []
    for session in sessions:
        steps = [
            tuple(
                one if one.think_s <= max_think_s else replace(one, think_s=max_think_s)
                for one in step
                if one.prompt_tokens + one.output_tokens <= max_context_tokens
            )
            for step in session.steps
        ]
        if kept := tuple(step for step in steps if step):
            fitted.append(replace(session, steps=kept))
    return fitted


def shrink(sessions: Iterable[TraceSession], ratio: int) -> list[TraceSession]:
    """Divide all lengths by `ratio`, for small models: the blocks get smaller, not fewer.

    Raises ValueError where it doesn't divide the block size.
    """
    shrunk = []
    for session in sessions:
        if session.block_size % ratio:
            msg = f"{ratio} does not divide blocks of {session.block_size} tokens"
            raise ValueError(msg)
        steps = tuple(
            tuple(
                replace(
                    one,
                    prompt_tokens=max(1, one.prompt_tokens // ratio),
                    output_tokens=max(1, one.output_tokens // ratio),
                )
                for one in step
            )
            for step in session.steps
        )
        shrunk.append(replace(session, steps=steps, block_size=session.block_size // ratio))
    return shrunk


def share_prefix(sessions: Iterable[TraceSession]) -> list[TraceSession]:
    """Let sessions with equally long tools and system prompts share them.

    Traces name blocks within one session only, so they do not show what sessions have in common.
    """
    return [
        replace(one, shared_blocks=(one.tool_tokens + one.system_tokens) // one.block_size)
        for one in sessions
    ]


def add_bursts(
    sessions: Sequence[TraceSession],
    share_ratio: float,
    size: int,
    max_context_tokens: int,
    seed: int,
) -> list[TraceSession]:
    """Let a share of the sessions be thick: `size` subagents at once, after every fourth step.

    Each subagent goes on from the prompt before it with 1,024 tokens of its own, where the model's
    context has room. With a size of 0 the same sessions are thick in name only, to compare with.
    """
    rng = Random(seed)  # noqa: S311  # a simulation
    thick = set(rng.sample(range(len(sessions)), round(share_ratio * len(sessions))))
    return [
        _with_bursts(one, size, max_context_tokens) if number in thick else one
        for number, one in enumerate(sessions)
    ]


def _with_bursts(session: TraceSession, size: int, max_context_tokens: int) -> TraceSession:
    blocks = _BURST_TOKENS // session.block_size
    next_id = _FIRST_BURST_ID
    steps: list[Step] = []
    bursts: set[int] = set()
    for number, step in enumerate(session.steps, 1):
        steps.append(step)
        if number % _BURST_EVERY_STEPS:
            continue
        ids = range(next_id, next_id + size * (blocks + 1), blocks + 1)
        next_id = ids.stop
        burst = tuple(_forked(step[0], range(one, one + blocks), session) for one in ids)
        if burst and burst[0].prompt_tokens + burst[0].output_tokens <= max_context_tokens:
            bursts.add(len(steps))
            steps.append(burst)
    return replace(session, steps=tuple(steps), bursts=frozenset(bursts))


def _forked(one: TraceRequest, own: range, session: TraceSession) -> TraceRequest:
    full_blocks = sum(map(len, one.hash_ids))
    return TraceRequest(
        hash_ids=(*one.hash_ids, own),
        prompt_tokens=(full_blocks + len(own)) * session.block_size + 1,
        output_tokens=one.output_tokens,
        think_s=0.0,
    )

"""How much of a prompt's beginning is held."""

from bisect import bisect_left
from collections.abc import Container, Sequence

from policies.types import BlockHash


def held_end(prompt: Sequence[BlockHash], held: Container[BlockHash], start: int = 0) -> int:
    """Return the first block from `start` on that is not held; the prompt's length if all are.

    Whoever holds a block here holds all before it down to `start`, so bisection finds the end.
    """
    if start == len(prompt) or prompt[start] not in held:
        return start
    if prompt[-1] in held:
        return len(prompt)
    return bisect_left(prompt, True, lo=start, key=lambda block: block not in held)

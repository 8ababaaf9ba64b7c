"""How much of a prompt's beginning is held."""

from bisect import bisect_left
from collections.abc import Container, Sequence

from policies.types import BlockHash


def held_end(prompt: Sequence[BlockHash], held: Container[BlockHash]) -> int:
    """Return the first block that is not held; the prompt's length if all are.

    Whoever holds a block here holds all before it, so bisection finds the end.
    """
    if not prompt or prompt[0] not in held:
        return 0
    if prompt[-1] in held:
        return len(prompt)
    return bisect_left(prompt, True, key=lambda block: block not in held)

"""The likeliest continuation of a prompt, with its probabilities, to be compared with another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from vllm.outputs import RequestOutput

TOLERANCE = 1.0
"""Natural logarithm of the factor in probability up to which two computations agree: rounding in
another order changes a likely token's by some hundredths, KV of another prompt by much more."""


@dataclass(frozen=True, slots=True)
class GreedyAnswer:
    """Tokens, and for each place the logarithms of probability of the likeliest ones."""

    tokens: Sequence[int]
    logprobs: Sequence[Mapping[int, float]]
    cached_tokens: int
    """Of the prompt's, those that were read from a cache."""

    @classmethod
    def of(cls, output: RequestOutput) -> Self:
        """Return what the engine said at the end of a request with `logprobs`."""
        [answer] = output.outputs
        assert answer.logprobs is not None
        logprobs = [
            {token: one.logprob for token, one in place.items()} for place in answer.logprobs
        ]
        return cls(list(answer.token_ids), logprobs, output.num_cached_tokens or 0)

    def agrees(self, other: Self) -> bool:
        """Tell whether each token is about as likely in both, up to where they part.

        They may part where two tokens are about as likely.
        """
        for token, its, mine, theirs in zip(
            self.tokens, other.tokens, self.logprobs, other.logprobs, strict=False
        ):
            at_most = min(theirs.values())  # as likely is one that is not among the likeliest
            if not abs(mine[token] - theirs.get(token, at_most)) <= TOLERANCE:  # so also for NaN
                return False
            if token != its:
                return True
        return True

"""What became of each token of a prompt: which tier it was cached in, or why it was in none.

A miss is of one kind, which says what would have helped:

- first seen: nothing would have; no replica ever computed it, as far as is remembered;
- elsewhere: another placement; a replica that was not chosen could have reused it;
- evicted: more memory; it was computed once, and nobody has it any more.

What the index knew is noted when the request is placed, as it changes at once; what was cached is
what the engine reports at the end. Blocks that the chosen replica was thought to have and that it
did not reuse were evicted in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from policies.match import NO_MATCH, Match
from policies.prefix_index import PrefixIndex
from policies.types import BlockHash, ReplicaId, Tier


class Miss(StrEnum):
    """Why a token was in no cache that could be used."""

    FIRST_SEEN = "first_seen"
    EVICTED = "evicted"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Tokens of prompts by what became of them."""

    gpu_hit_tokens: int = 0
    cpu_hit_tokens: int = 0
    shared_hit_tokens: int = 0
    first_seen_tokens: int = 0
    evicted_tokens: int = 0
    elsewhere_tokens: int = 0

    @property
    def hits(self) -> dict[Tier, int]:
        """Tokens that were cached, by tier."""
        return {
            Tier.GPU: self.gpu_hit_tokens,
            Tier.CPU: self.cpu_hit_tokens,
            Tier.SHARED: self.shared_hit_tokens,
        }

    @property
    def misses(self) -> dict[Miss, int]:
        """Tokens that were prefilled, by kind."""
        return {
            Miss.FIRST_SEEN: self.first_seen_tokens,
            Miss.EVICTED: self.evicted_tokens,
            Miss.ELSEWHERE: self.elsewhere_tokens,
        }

    @property
    def hit_tokens(self) -> int:
        """Tokens that were cached in any tier."""
        return self.gpu_hit_tokens + self.cpu_hit_tokens + self.shared_hit_tokens

    @property
    def missed_tokens(self) -> int:
        """Tokens that were prefilled."""
        return self.first_seen_tokens + self.evicted_tokens + self.elsewhere_tokens

    @property
    def prompt_tokens(self) -> int:
        """All of them."""
        return self.hit_tokens + self.missed_tokens

    def __add__(self, other: "PromptTokens") -> "PromptTokens":
        """Return the sums."""
        return PromptTokens(
            self.gpu_hit_tokens + other.gpu_hit_tokens,
            self.cpu_hit_tokens + other.cpu_hit_tokens,
            self.shared_hit_tokens + other.shared_hit_tokens,
            self.first_seen_tokens + other.first_seen_tokens,
            self.evicted_tokens + other.evicted_tokens,
            self.elsewhere_tokens + other.elsewhere_tokens,
        )


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What the index knew of a prompt when it was placed, in blocks of its beginning.

    `match` is what the chosen replica could reuse, `elsewhere_blocks` the most that another one
    could, and `seen_blocks` were computed once, by any.
    """

    match: Match
    elsewhere_blocks: int
    seen_blocks: int


def foresee(
    hashes: Sequence[BlockHash],
    matches: Mapping[ReplicaId, Match],
    chosen: ReplicaId,
    index: PrefixIndex,
) -> Foreseen:
    """Note what `index` knows of a prompt, before its blocks are expected on the chosen replica.

    `matches` is what `index.match` said of it.
    """
    match = matches.get(chosen, NO_MATCH)
    others = (other.blocks for replica, other in matches.items() if replica != chosen)
    elsewhere_blocks = max(others, default=0)
    known_blocks = max(match.blocks, elsewhere_blocks)
    return Foreseen(match, elsewhere_blocks, index.seen_blocks(hashes, known_blocks))


def split_by_tier(cached_tokens: int, match: Match, block_size: int) -> dict[Tier, int]:
    """Tell in which tiers cached tokens were, where the engine reports their sum alone.

    They were where the index knew them to be, and those that it did not know of in GPU memory.
    """
    gpu = min(cached_tokens, match.gpu_blocks * block_size)
    cpu = min(cached_tokens - gpu, match.cpu_blocks * block_size)
    shared = min(cached_tokens - gpu - cpu, match.shared_blocks * block_size)
    return {Tier.GPU: cached_tokens - cpu - shared, Tier.CPU: cpu, Tier.SHARED: shared}


def judge(
    foreseen: Foreseen, prompt_tokens: int, block_size: int, cached_tokens: Mapping[Tier, int]
) -> PromptTokens:
    """Return what became of a prompt's tokens, of which the engine reported some as cached.

    The sum is `prompt_tokens`, whatever is reported. Where another replica had what was evicted
    here, it was elsewhere. Engines compute a prompt's last token always: its block is first seen.
    """
    gpu = min(cached_tokens.get(Tier.GPU, 0), prompt_tokens)
    cpu = min(cached_tokens.get(Tier.CPU, 0), prompt_tokens - gpu)
    shared = min(cached_tokens.get(Tier.SHARED, 0), prompt_tokens - gpu - cpu)
    hit_end = gpu + cpu + shared
    reusable_blocks = max(0, prompt_tokens - 1) // block_size
    seen_end = max(hit_end, min(foreseen.seen_blocks, reusable_blocks) * block_size)
    elsewhere_end = min(seen_end, max(hit_end, foreseen.elsewhere_blocks * block_size))
    return PromptTokens(
        gpu_hit_tokens=gpu,
        cpu_hit_tokens=cpu,
        shared_hit_tokens=shared,
        first_seen_tokens=prompt_tokens - seen_end,
        evicted_tokens=seen_end - elsewhere_end,
        elsewhere_tokens=elsewhere_end - hit_end,
    )

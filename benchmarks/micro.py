"""What a decision costs: `python -m benchmarks.micro --json OUT`.

A long prompt is hashed, matched and decided on among replicas that all hold part of it, in an
index full of other blocks. Times are medians. Hashing a stored event's tokens counts as part of
applying it. What it costs to get a prompt's tokens is measured with a real tokenizer
(tokenizing.py), where the model's directory is there.
"""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.results import write_results
from policies.block_hash import Tokens, block_contents, hash_blocks, root_hash
from policies.kv_events import EngineHash, EventBatch, Stored
from policies.router import Router
from policies.tunables import Tunables
from policies.types import BlockHash, ReplicaId, ReplicaState, Request, RequestId, SessionId, Tier

REPEATS = 20
EVENT_BLOCKS = 512
"""Blocks in one event: a prefill step of 8,192 tokens."""

APPLIED_BLOCKS = 200_000
SESSIONS_PER_REPLICA = 20
VOCABULARY = 150_000
MODEL = Path("models/smollm2-135m-instruct")


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured at."""

    prompt_tokens: int = 100_000
    block_size: int = 16
    replicas: int = 64
    other_blocks: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured; deciding includes matching, and booking the request."""

    hash_ms: float
    match_ms: float
    decide_ms: float
    apply_blocks_per_s: float
    bytes_per_block: float


class Fleet:
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


def measure(sizes: Sizes, seed: int) -> Costs:
    """Fill an index, then time what is done with it."""
    fleet = Fleet(sizes, seed)
    router = fleet.router
    bytes_per_block = _fill(fleet)
    fleet.start_sessions()
    blocks = sizes.prompt_tokens // sizes.block_size
    prompt = fleet.tokens(blocks)
    for replica in range(sizes.replicas):
        held_blocks = blocks * (replica + 1) // sizes.replicas
        fleet.store(replica, prompt[: held_blocks * sizes.block_size])
    hashes = hash_blocks(fleet.root, prompt, sizes.block_size)
    numbers = count()
    ties = Random(seed)  # noqa: S311  # it breaks ties

    def decide() -> None:
        request = RequestId(f"request-{next(numbers)}")
        turn = Request(request, None, hashes, sizes.prompt_tokens, sizes.block_size, 1.0)
        router.decide(turn, fleet.states, 1.0, ties)
        router.end(request, 1.0)

    return Costs(
        hash_ms=_time_ms(lambda: hash_blocks(fleet.root, prompt, sizes.block_size)),
        match_ms=_time_ms(lambda: router.index.match(hashes)),
        decide_ms=_time_ms(decide),
        apply_blocks_per_s=_time_applying(fleet),
        bytes_per_block=bytes_per_block,
    )


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


def _fill(fleet: Fleet) -> float:
    """Give each replica its share of the other blocks; return the bytes that a block takes."""
    share = fleet.sizes.other_blocks // fleet.sizes.replicas
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for replica in range(fleet.sizes.replicas):
        fleet.store(replica, fleet.tokens(share))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / len(fleet.router.index)


def _time_applying(fleet: Fleet) -> float:
    """Return the blocks per second at which new ones are stored, hashing included."""
    prompts = [fleet.tokens(EVENT_BLOCKS * 4) for _ in range(APPLIED_BLOCKS // EVENT_BLOCKS // 4)]
    started = time.perf_counter()
    for number, prompt in enumerate(prompts):
        fleet.store(number % fleet.sizes.replicas, prompt)
    return EVENT_BLOCKS * 4 * len(prompts) / (time.perf_counter() - started)


def _time_ms(call: Callable[[], object]) -> float:
    times_ms = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times_ms.append((time.perf_counter() - started) * 1e3)
    return median(times_ms)


def main(
    out: Annotated[Path | None, typer.Option("--json", help="where to write the figures")] = None,
    seed: Annotated[int, typer.Option(help="of tokens and ties")] = 0,
    model: Annotated[Path, typer.Option(help="whose tokenizer and chat template to use")] = MODEL,
) -> None:
    """Print what tokenising, hashing, matching, deciding and applying events cost."""
    sizes = Sizes()
    result = asdict(measure(sizes, seed)) | asdict(sizes)
    if model.is_dir():
        from benchmarks import tokenizing

        result |= asdict(tokenizing.measure(model, sizes.prompt_tokens))
    else:
        print(f"tokenising is left out: there is no model directory {model}")
    table = Table("figure", "value")
    for name, value in result.items():
        table.add_row(name, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)
    if out:
        write_results(out, f"python -m benchmarks.micro --seed {seed} --model {model}", [result])


if __name__ == "__main__":
    typer.run(main)

"""What a decision costs: `python -m benchmarks.micro --json OUT`.

A long prompt is hashed, matched and decided on among replicas that all hold part of it, in an
index full of other blocks. Times are medians. Hashing a stored event's tokens counts as part of
applying it. What it costs to get a prompt's tokens is measured with a real tokenizer
(tokenizing.py), where the model's directory is there.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.filled_router import EVENT_BLOCKS, FilledRouter, Sizes
from benchmarks.results import write_results
from policies.block_hash import hash_blocks
from policies.types import Request, RequestId

REPEATS = 20
APPLIED_BLOCKS = 200_000
MODEL = Path("models/smollm2-135m-instruct")


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured; deciding includes matching, and booking the request."""

    hash_ms: float
    match_ms: float
    decide_ms: float
    apply_blocks_per_s: float
    bytes_per_block: float


def measure(sizes: Sizes, seed: int) -> Costs:
    """Fill an index, then time what is done with it."""
    filled = FilledRouter(sizes, seed)
    router = filled.router
    bytes_per_block = filled.fill()
    filled.start_sessions()
    blocks = sizes.prompt_tokens // sizes.block_size
    prompt = filled.tokens(blocks)
    for replica in range(sizes.replicas):
        held_blocks = blocks * (replica + 1) // sizes.replicas
        filled.store(replica, prompt[: held_blocks * sizes.block_size])
    hashes = hash_blocks(filled.root, prompt, sizes.block_size)
    numbers = count()
    ties = Random(seed)  # noqa: S311  # it breaks ties

    def decide() -> None:
        request = RequestId(f"request-{next(numbers)}")
        turn = Request(request, None, hashes, sizes.prompt_tokens, sizes.block_size, 1.0)
        router.decide(turn, filled.states, 1.0, ties)
        router.end(request, 1.0)

    return Costs(
        hash_ms=_time_ms(lambda: hash_blocks(filled.root, prompt, sizes.block_size)),
        match_ms=_time_ms(lambda: router.index.match(hashes)),
        decide_ms=_time_ms(decide),
        apply_blocks_per_s=_time_applying(filled),
        bytes_per_block=bytes_per_block,
    )


def _time_applying(filled: FilledRouter) -> float:
    """Return the blocks per second at which new ones are stored, hashing included."""
    prompts = [filled.tokens(EVENT_BLOCKS * 4) for _ in range(APPLIED_BLOCKS // EVENT_BLOCKS // 4)]
    started = time.perf_counter()
    for number, prompt in enumerate(prompts):
        filled.store(number % filled.sizes.replicas, prompt)
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

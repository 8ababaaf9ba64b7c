"""What the way to a replica costs: `python -m benchmarks.overhead --url URL [--url OTHER]`.

Run it against warmturn and against a bare vLLM server with the same model; a small model shows the
cost of the way best. Rounds alternate between the URLs, since machines drift.
"""

import asyncio
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer

from benchmarks.results import given_command, write_results

TOKENS = 50
STREAMS = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Medians for one server, in milliseconds."""

    url: str
    unary_ms: float
    """One request at a time, one token, not streamed."""
    ttft_ms: float
    """One stream at a time of 50 tokens: first byte."""
    stream_ms: float
    """The same: last byte."""
    busy_ttft_ms: float
    """Eight streams at a time of 50 tokens: first byte."""
    busy_stream_ms: float
    """The same: last byte."""


def overhead(
    url: Annotated[list[str], typer.Option(help="A server; give several to compare them.")],
    rounds: Annotated[int, typer.Option(help="Rounds per server.")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Measure every server and print a row for each."""
    rows = asyncio.run(_measure(url, rounds))
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in asdict(row).items()))
    if json_file:
        write_results(
            json_file, given_command("benchmarks.overhead"), [asdict(row) for row in rows]
        )


async def _measure(urls: list[str], rounds: int) -> list[Row]:
    samples: dict[str, list[tuple[float, ...]]] = {url: [] for url in urls}
    for number in range(rounds + 1):
        for url in urls:
            print(f"round {number} of {rounds}: {url}", file=sys.stderr)
            sample = await _round(url)
            if number:  # the first warms up
                samples[url].append(sample)
    medians = {
        url: map(statistics.median, zip(*taken, strict=True)) for url, taken in samples.items()
    }
    return [
        Row(url, *(round(value * 1e3, 1) for value in values)) for url, values in medians.items()
    ]


async def _round(url: str) -> tuple[float, ...]:
    async with httpx.AsyncClient(base_url=url, timeout=120) as http:
        model = (await http.get("/v1/models")).json()["data"][0]["id"]

        async def ask(tokens: int, stream: bool, number: int) -> tuple[float, float]:
            """Return the seconds until the first and the last byte of the answer."""
            body = {"model": model, "prompt": f"hello {number}", "max_tokens": tokens}
            body |= {"stream": stream, "ignore_eos": True, "temperature": 0}
            started = time.perf_counter()
            first = 0.0
            async with http.stream("POST", "/v1/completions", json=body) as response:
                async for _ in response.raise_for_status().aiter_raw():
                    first = first or time.perf_counter() - started
            return first, time.perf_counter() - started

        unary = [(await ask(1, stream=False, number=n))[1] for n in range(20)]
        alone = [await ask(TOKENS, stream=True, number=n) for n in range(STREAMS)]
        busy = await asyncio.gather(*(ask(TOKENS, True, n) for n in range(STREAMS)))
    taken = [unary, *zip(*alone, strict=True), *zip(*busy, strict=True)]
    return tuple(map(statistics.median, taken))


if __name__ == "__main__":
    typer.run(overhead)

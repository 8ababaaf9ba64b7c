"""Replays agents' sessions against a running service, or against one router after another.

    python -m benchmarks.live --url URL [--trace FILE] --sessions N --json OUT
    python -m benchmarks.live --routers warmturn,round_robin --sessions N --json OUT

The first form takes the service as it is, with what its caches hold: after a replay, the same seed
finds its prompts there. The second starts Ray on this machine and, for each router anew, replicas
of a tiny model; each router gets the same sessions. What the figures mean stands in reuse.py and
live_figures.py.
"""

import asyncio
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.live_figures import figures
from benchmarks.live_replay import TIMEOUT_S, Client, Replay, ReplayError
from benchmarks.live_service import Fleet, services
from benchmarks.live_sessions import Pace
from benchmarks.live_tables import tables
from benchmarks.live_workload import Workload, WorkloadError
from benchmarks.results import given_command, write_results
from benchmarks.traces import read_sessions
from serve_app.local_cluster import DeployError
from serve_app.serve_file import ServeFileError

AS_DEPLOYED = "as deployed"
"""The policy's name in the first form: a service does not say which it has."""

CANNOT_REPLAY = (
    DeployError,
    ReplayError,
    ServeFileError,
    ValidationError,
    WorkloadError,
    httpx.HTTPError,
)
"""What ends the command with a line instead of a traceback."""


def live(
    sessions: Annotated[int, typer.Option(min=1, help="Sessions that live at once.")] = 24,
    turns: Annotated[int, typer.Option(min=1, help="Turns per session, at most.")] = 8,
    url: Annotated[str, typer.Option(help="A running service.")] = "",
    routers: Annotated[str, typer.Option(help="Names with commas: a service each.")] = "",
    replicas: Annotated[int, typer.Option(min=1, help="Of each --routers service.")] = 3,
    blocks: Annotated[int, typer.Option(min=1, help="Primary KV blocks per replica.")] = 544,
    block_size: Annotated[int, typer.Option(min=1, help="The service's tokens per KV block.")] = 32,
    trace: Annotated[
        Path | None, typer.Option(exists=True, help="Recorded sessions; else they are made up.")
    ] = None,
    tokens_per_block: Annotated[int, typer.Option(min=1, help="What a trace's block becomes.")] = 2,
    think_s: Annotated[float, typer.Option(help="Made-up sessions' mean pause.")] = 0.5,
    think_scale: Annotated[float, typer.Option(help="Times a trace's pauses.")] = 0.05,
    max_think_s: Annotated[float, typer.Option(help="Longest pause.")] = 10.0,
    ramp_s: Annotated[float, typer.Option(help="Sessions start within so long.")] = 5.0,
    slo_s: Annotated[float, typer.Option(help="Time to first token that is good.")] = 1.0,
    session_ids: Annotated[bool, typer.Option(help="Send X-Session-ID.")] = True,
    seed: Annotated[int, typer.Option(help="Of sessions and pauses.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rows here.")] = None,
) -> None:
    """Replay sessions and print a row for each service."""
    if bool(url) == bool(routers):
        raise typer.BadParameter("give one of --url and --routers")
    pace = Pace(ramp_s, think_s, think_scale, max_think_s)
    recorded = read_sessions(trace) if trace else None
    workload = Workload(sessions, turns, seed, pace, recorded, tokens_per_block)
    fleet = Fleet(replicas, blocks, block_size)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    rows: list[dict[str, Any]] = []
    try:
        with progress, closing(_services(url, routers, fleet, progress)) as found:
            for policy, address in found:
                replay = asyncio.run(_replay(address, workload, session_ids, policy, progress))
                measured = figures(replay, block_size, replicas if routers else None, slo_s)
                load = sessions / measured["replicas"] if measured["replicas"] else None
                rows.append({"policy": policy, "load": load, "seed": seed} | measured)
                for error in sorted(set(replay.errors)):
                    progress.console.print(f"{policy}: {error}", markup=False)
                if json_file:  # after each router, so that a later one's failure loses nothing
                    write_results(json_file, given_command("benchmarks.live"), rows)
    except CANNOT_REPLAY as error:
        progress.console.print(f"cannot replay: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from error
    finally:
        if rows:
            Console().print(*tables(rows), sep="\n")


def _services(
    url: str, routers: str, fleet: Fleet, progress: Progress
) -> Generator[tuple[str, str], None, None]:
    if url:
        yield AS_DEPLOYED, url
    else:
        yield from services(routers.split(","), fleet, progress.console.print)


async def _replay(
    url: str, workload: Workload, session_ids: bool, policy: str, progress: Progress
) -> Replay:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits) as http:
        client = await Client.connect(http, send_session_ids=session_ids)
        scripts = workload.scripts(client.context_tokens)
        task = progress.add_task(policy, total=sum(len(script.turns) for script in scripts))
        return await client.replay(scripts, lambda: progress.advance(task))


if __name__ == "__main__":
    typer.run(live)

"""What watching a service costs: `python -m benchmarks.observing`.

Two services of one tiny replica each run on this machine; one has every setting that watches. Each
in turn serves the same sessions, while the other idles. As the watched one does so, its metrics are
scraped and its console is read. Pairs alternate in who comes first, since machines drift. Clients,
scraper and the receiver of traces have the same cores, so that their work counts as well.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import msgspec
import psutil
import typer

from benchmarks.live_service import ROOT, Fleet, configure, free_port, make_tiny_model
from benchmarks.otlp_receiver import otlp_receiver
from benchmarks.results import given_command, write_results
from serve_app import serve_file
from serve_app.local_cluster import LocalCluster, deploy, local_cluster, states

FLEET = Fleet(replicas=1, blocks=4000, block_size=32)
CLIENTS = 8
TURNS = 4
"""Of one session, each of which extends the last."""
TOKENS = 32
WORDS = 200

SCRAPE_S = 15.0
"""As in dashboards/prometheus.yml."""
READ_S = 2.0
WATCHED = "watched"
PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Run:
    """What one service did in one run."""

    turns_per_s: float
    cpu_s_per_turn: float
    """Of all processes: services, Ray, clients, scraper, receiver."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same work on both, one after the other."""

    plain: Run
    watched: Run


def watching(endpoint: str, directory: Path) -> dict[str, Any]:
    """Return every setting of `args` that watches, turned on: the place for those to come."""
    return {"otlp_traces_endpoint": endpoint, "record": str(directory / "turns.jsonl")}


def observing(
    pairs: Annotated[int, typer.Option(help="Pairs of runs.")] = 12,
    sessions: Annotated[int, typer.Option(help="Sessions per run.")] = 40,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the pairs here.")] = None,
) -> None:
    """Measure both services and print what is left of the throughput."""
    port = free_port()
    with (
        otlp_receiver() as receiver,
        TemporaryDirectory() as directory,
        local_cluster() as cluster,
    ):
        content = both_services(port, watching(receiver.endpoint, Path(directory)))
        make_tiny_model(FLEET.model)
        deploy(cluster, content)
        for app in (PLAIN, WATCHED):
            for progress in states(cluster, app):
                print(f"{app}: {progress}", file=sys.stderr)
        taken = asyncio.run(_measure(f"http://127.0.0.1:{port}", cluster, pairs, sessions))
        print(f"{len(receiver.spans)} spans", file=sys.stderr)
    for field in fields(Run):
        plain = [getattr(pair.plain, field.name) for pair in taken]
        watched = [getattr(pair.watched, field.name) for pair in taken]
        ratios = [with_it / without for with_it, without in zip(watched, plain, strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4)
        print(
            f"{field.name}  plain {statistics.median(plain):.4g}"
            f"  watched {statistics.median(watched):.4g}"
            f"  ratio {median:.3f} (quartiles {low:.3f} to {high:.3f})"
        )
    if json_file:
        command = given_command("benchmarks.observing")
        write_results(json_file, command, [asdict(pair) for pair in taken])


def both_services(port: int, watching: dict[str, Any]) -> dict[str, Any]:
    """Return what is deployed: both services, which differ in nothing else."""
    content = configure(serve_file.load(ROOT / "serve.yaml"), "warmturn", FLEET, port)
    plain = serve_file.app(content)
    content["applications"] = [plain | {"name": PLAIN, "route_prefix": f"/{PLAIN}"}]
    watched = deepcopy(plain) | {"name": WATCHED, "route_prefix": f"/{WATCHED}"}
    watched["args"] |= watching
    content["applications"].append(watched)
    return content


async def _measure(url: str, cluster: LocalCluster, pairs: int, sessions: int) -> list[Pair]:
    taken: list[Pair] = []
    targets = _scraped(cluster, f"{url}/{WATCHED}")
    async with httpx.AsyncClient(timeout=120) as http:
        model = (await http.get(f"{url}/{PLAIN}/v1/models")).json()["data"][0]["id"]
        for number in range(pairs + 1):
            runs: dict[str, Run] = {}
            for app in (PLAIN, WATCHED) if number % 2 else (WATCHED, PLAIN):
                service = f"{url}/{app}"
                async with _watch(http, service, targets) if app == WATCHED else nullcontext():
                    runs[app] = await _serve(http, service, model, sessions, number)
            pair = Pair(runs[PLAIN], runs[WATCHED])
            print(f"pair {number} of {pairs}: {pair}", file=sys.stderr)
            if number:  # the first warms up
                taken.append(pair)
    return taken


async def _serve(http: httpx.AsyncClient, url: str, model: str, sessions: int, number: int) -> Run:
    """Serve sessions, of which CLIENTS run at a time."""
    left = iter(range(sessions))

    async def client() -> None:
        for session in left:
            name = f"session {session} of {number}"
            messages = [name + ": " + " ".join(f"w{i}" for i in range(WORDS))]
            for turn in range(TURNS):
                messages.append(f"go on {turn}")
                body = {
                    "model": model,
                    "messages": [{"role": "user", "content": text} for text in messages],
                    "max_tokens": TOKENS,
                    "ignore_eos": True,
                    "stream": True,
                }
                answer = http.stream(
                    "POST", f"{url}/v1/chat/completions", json=body, headers={"x-session-id": name}
                )
                async with answer as response:
                    async for _ in response.raise_for_status().aiter_raw():
                        pass

    began_s, cpu_s, turns = time.perf_counter(), _cpu_s(), sessions * TURNS
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return Run(turns / (time.perf_counter() - began_s), (_cpu_s() - cpu_s) / turns)


def _cpu_s() -> float:
    """Return the processor time that this process and all that it started have used so far."""
    mine = psutil.Process()
    times = [one.cpu_times() for one in (mine, *mine.children(recursive=True)) if one.is_running()]
    return sum(one.user + one.system for one in times)


@asynccontextmanager
async def _watch(http: httpx.AsyncClient, url: str, targets: list[str]) -> AsyncIterator[None]:
    """Scrape the targets and read the console as long as this is open."""

    async def get(addresses: list[str], period_s: float) -> None:
        await asyncio.sleep(period_s / 2)  # a run has as many periods as it is long
        while True:
            for address in addresses:
                (await http.get(address)).raise_for_status()
            await asyncio.sleep(period_s)

    console = [f"{url}/warmturn/sessions", f"{url}/warmturn/replicas"]
    tasks = [
        asyncio.create_task(get(targets, SCRAPE_S)),
        asyncio.create_task(get(console, READ_S)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                raise error


def _scraped(cluster: LocalCluster, url: str) -> list[str]:
    """Return what Prometheus would scrape: the router's metrics and those of Ray's agents."""
    discovery = cluster.log_directory.parent / "prom_metrics_service_discovery.json"
    groups = msgspec.json.decode(discovery.read_bytes())
    agents = [target for group in groups for target in group["targets"]]
    return [f"{url}/warmturn/metrics", *(f"http://{agent}/metrics" for agent in agents)]


if __name__ == "__main__":
    typer.run(observing)

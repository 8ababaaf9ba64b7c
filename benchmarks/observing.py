"""What watching a service costs: `python -m benchmarks.observing`.

Two services of one tiny replica each run on this machine; one has every setting that watches. In
each round both are kept busy side by side, since the speed of a machine drifts by more than what is
looked for, but is the same for both at any moment. Meanwhile the metrics of the watched one are
scraped and its page of sessions is open.

Compared are the turns that each served in that time, and the processor time of each one's own
processes. What both share, as Serve's proxy and Ray's agent, also works for who watches: how much,
is measured after each round, with nobody served.
"""

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import msgspec
import typer

from benchmarks.busy_clients import Answered, keep_busy
from benchmarks.live_service import ROOT, Fleet, configure, free_port, make_tiny_model
from benchmarks.observing_figures import Round, Served, figures
from benchmarks.onlookers import NEW_SESSIONS, SCRAPE_S, Onlookers, Watched, onlookers
from benchmarks.processes import SHARED, Processes, routers
from benchmarks.results import given_command, write_results
from serve_app import serve_file
from serve_app.local_cluster import LocalCluster, deploy, local_cluster, states

FLEET = Fleet(replicas=1, blocks=4000, block_size=32)
BUSY_S = SCRAPE_S
"""How long both are, in a round."""

LOOKS = 5
"""So often the page is read, and so often all is scraped, while nobody is served."""
IDLE_S = 2.0

WATCHED = "watched"
PLAIN = "plain"


def watching(endpoint: str, directory: Path) -> dict[str, Any]:
    """Return every setting of `args` that watches, turned on: the place for those to come."""
    return {"otlp_traces_endpoint": endpoint, "record": str(directory / "turns.jsonl")}


def observing(
    rounds: Annotated[int, typer.Option(help="How often both serve.", min=2)] = 24,
    sessions: Annotated[int, typer.Option(help="Sessions of each at a time.", min=1)] = 4,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the rounds here.")] = None,
) -> None:
    """Measure both services and print what part of its throughput a watched one loses."""
    port = free_port()
    with onlookers() as crowd, TemporaryDirectory() as directory, local_cluster() as cluster:
        content = both_services(port, watching(crowd.endpoint, Path(directory)))
        make_tiny_model(FLEET.model)
        deploy(cluster, content)
        for app in (PLAIN, WATCHED):
            for progress in states(cluster, app):
                print(f"{app}: {progress}", file=sys.stderr)
        url = f"http://127.0.0.1:{port}"
        taken = asyncio.run(_measure(url, cluster, crowd, rounds, sessions))
    for line in figures(taken, os.cpu_count() or 1):
        print(line)
    if json_file:
        command = given_command("benchmarks.observing")
        write_results(json_file, command, [asdict(one) for one in taken])


def both_services(port: int, watching: dict[str, Any]) -> dict[str, Any]:
    """Return what is deployed: both services, which differ in nothing else."""
    content = configure(serve_file.load(ROOT / "serve.yaml"), "warmturn", FLEET, port)
    plain = serve_file.app(content)
    content["applications"] = [plain | {"name": PLAIN, "route_prefix": f"/{PLAIN}"}]
    watched = deepcopy(plain) | {"name": WATCHED, "route_prefix": f"/{WATCHED}"}
    watched["args"] |= watching
    content["applications"].append(watched)
    return content


async def _measure(
    url: str, cluster: LocalCluster, crowd: Onlookers, rounds: int, sessions: int
) -> list[Round]:
    taken: list[Round] = []
    watched = _watched(cluster, f"{url}/{WATCHED}")
    processes = Processes(routers((PLAIN, WATCHED)), but={crowd.pid})
    async with httpx.AsyncClient(timeout=120) as http:
        model = (await http.get(f"{url}/{PLAIN}/v1/models")).json()["data"][0]["id"]
        for number in range(rounds + 1):
            began_s, before_s = time.perf_counter(), processes.used_s()
            with crowd.watch(watched) as seen:
                answered = await _keep_both_busy(http, url, model, sessions, number)
            took_s, used_s = time.perf_counter() - began_s, processes.since(before_s)
            page_s, scrape_s = await _look(http, processes, watched)
            served = {app: Served(answered[app], used_s[app]) for app in answered}
            one = Round(
                **served, took_s=took_s, shared_s=used_s[SHARED], page_s=page_s, scrape_s=scrape_s
            )
            print(f"round {number} of {rounds}: {one}, {seen[0]}", file=sys.stderr)
            if number:  # the first warms up
                taken.append(one)
    return taken


async def _keep_both_busy(
    http: httpx.AsyncClient, url: str, model: str, sessions: int, number: int
) -> dict[str, Answered]:
    """Return what each answered in a round; they take turns in who begins."""
    apps = (PLAIN, WATCHED) if number % 2 else (WATCHED, PLAIN)
    name = f"round {number}"
    answered = await asyncio.gather(
        *(keep_busy(http, f"{url}/{app}", model, sessions, name, BUSY_S) for app in apps)
    )
    return dict(zip(apps, answered, strict=True))


async def _look(
    http: httpx.AsyncClient, processes: Processes, watched: Watched
) -> tuple[float, float]:
    """Return what shared processes need for one answer to the page, and for one scrape.

    That is beyond what they need anyway.
    """

    async def rate(addresses: Sequence[str]) -> tuple[float, float]:
        """Return the processor time used, and for how long."""
        began_s, before_s = time.perf_counter(), processes.used_s()
        for address in addresses:
            (await http.get(address)).raise_for_status()
        if not addresses:
            await asyncio.sleep(IDLE_S)
        return processes.since(before_s)[SHARED], time.perf_counter() - began_s

    idle_s, for_s = await rate(())
    page_s, read_s = await rate([f"{watched.console}/{NEW_SESSIONS}"] * LOOKS)
    scrape_s, scraped_s = await rate([*watched.targets] * LOOKS)
    anyway = idle_s / for_s
    return (page_s - anyway * read_s) / LOOKS, (scrape_s - anyway * scraped_s) / LOOKS


def _watched(cluster: LocalCluster, url: str) -> Watched:
    """Return what is looked at; Prometheus would scrape the router and the agents of Ray."""
    discovery = cluster.log_directory.parent / "prom_metrics_service_discovery.json"
    groups = msgspec.json.decode(discovery.read_bytes())
    agents = [target for group in groups for target in group["targets"]]
    targets = f"{url}/warmturn/metrics", *(f"http://{agent}/metrics" for agent in agents)
    return Watched(targets, f"{url}/warmturn")


if __name__ == "__main__":
    typer.run(observing)

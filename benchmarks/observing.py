"""What watching a service costs: `python -m benchmarks.observing`.

Two services of one tiny replica each run on this machine; one has every setting that watches. Each
in turn serves the same sessions, while the other idles. As the watched one does so, its metrics are
scraped and its console is read. Runs are short and alternate, since the speed of a machine drifts
from one second to the next by more than what is looked for; the ratio is of all runs together.
Clients, and the onlookers that scrape, read and take the spans, have the same cores: they slow it
down too.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import httpx
import msgspec
import psutil
import typer

from benchmarks.live_service import ROOT, Fleet, configure, free_port, make_tiny_model
from benchmarks.onlookers import Onlookers, Watched, onlookers
from benchmarks.results import given_command, write_results
from serve_app import serve_file
from serve_app.local_cluster import LocalCluster, deploy, local_cluster, states

FLEET = Fleet(replicas=1, blocks=4000, block_size=32)
CLIENTS = 8
TURNS = 4
"""Of one session, each of which extends the last."""
TOKENS = 32
WORDS = 200

DRAWS = 1000

WATCHED = "watched"
PLAIN = "plain"
ENGINE = "VLLM::"
"""How the names of an engine's processes begin."""


@dataclass(frozen=True, slots=True)
class Run:
    """How long one service took for the turns of a run, and the processor time for that."""

    took_s: float
    cpu_s: float
    """Of services, Ray and clients, but of neither onlookers nor vLLM's engines: two processes of
    such an engine wait for each other at full speed, so that what they use says nothing."""
    onlookers_cpu_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The same work on both, one after the other."""

    plain: Run
    watched: Run


def watching(endpoint: str, directory: Path) -> dict[str, Any]:
    """Return every setting of `args` that watches, turned on: the place for those to come."""
    return {"otlp_traces_endpoint": endpoint, "record": str(directory / "turns.jsonl")}


def observing(
    pairs: Annotated[int, typer.Option(help="Pairs of runs.", min=2)] = 60,
    sessions: Annotated[int, typer.Option(help="Sessions per run.", min=1)] = CLIENTS,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the pairs here.")] = None,
) -> None:
    """Measure both services and print what is left of the throughput."""
    port = free_port()
    with onlookers() as crowd, TemporaryDirectory() as directory, local_cluster() as cluster:
        content = both_services(port, watching(crowd.endpoint, Path(directory)))
        make_tiny_model(FLEET.model)
        deploy(cluster, content)
        for app in (PLAIN, WATCHED):
            for progress in states(cluster, app):
                print(f"{app}: {progress}", file=sys.stderr)
        taken = asyncio.run(_measure(f"http://127.0.0.1:{port}", cluster, crowd, pairs, sessions))
    turns = sessions * TURNS * len(taken)
    for name, ratio in (("throughput", throughput_ratio), ("processor time", cpu_ratio)):
        low, high = likely(taken, ratio)
        print(f"{name}: {ratio(taken):.3f} of that of the plain one ({low:.3f} to {high:.3f})")
    for app in (PLAIN, WATCHED):
        runs = [getattr(pair, app) for pair in taken]
        took_s, cpu_s = sum(run.took_s for run in runs), sum(run.cpu_s for run in runs)
        print(f"{app}: {turns / took_s:.2f} turns/s, {1000 * cpu_s / turns:.0f} ms of a turn")
    own_s = sum(pair.watched.onlookers_cpu_s for pair in taken)
    print(f"onlookers: {1000 * own_s / turns:.1f} ms of a turn")
    if json_file:
        command = given_command("benchmarks.observing")
        write_results(json_file, command, [asdict(pair) for pair in taken])


def throughput_ratio(pairs: Sequence[Pair]) -> float:
    """Return the throughput of the watched service by that of the plain one, of all runs."""
    return sum(pair.plain.took_s for pair in pairs) / sum(pair.watched.took_s for pair in pairs)


def cpu_ratio(pairs: Sequence[Pair]) -> float:
    """Return the processor time of the watched service by that of the plain one, of all runs."""
    return sum(pair.watched.cpu_s for pair in pairs) / sum(pair.plain.cpu_s for pair in pairs)


def likely(pairs: Sequence[Pair], ratio: Callable[[Sequence[Pair]], float]) -> tuple[float, float]:
    """Return between what the ratio of so many pairs lies nine times of ten (a bootstrap)."""
    rng = Random(0)  # noqa: S311
    drawn = [ratio(rng.choices(pairs, k=len(pairs))) for _ in range(DRAWS)]
    low, *_, high = statistics.quantiles(drawn, n=20)
    return low, high


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
    url: str, cluster: LocalCluster, crowd: Onlookers, pairs: int, sessions: int
) -> list[Pair]:
    taken: list[Pair] = []
    watched = _watched(cluster, f"{url}/{WATCHED}")
    async with httpx.AsyncClient(timeout=120) as http:
        model = (await http.get(f"{url}/{PLAIN}/v1/models")).json()["data"][0]["id"]
        for number in range(pairs + 1):
            runs: dict[str, Run] = {}
            for app in (PLAIN, WATCHED) if number % 2 else (WATCHED, PLAIN):
                with ExitStack() as looks:
                    if app == WATCHED:
                        seen = looks.enter_context(crowd.watch(watched))
                    runs[app] = await _serve(
                        http, f"{url}/{app}", model, sessions, number, crowd.pid
                    )
            pair = Pair(runs[PLAIN], runs[WATCHED])
            print(f"pair {number} of {pairs}: {pair}, {seen[0]}", file=sys.stderr)
            if number:  # the first warms up
                taken.append(pair)
    return taken


async def _serve(
    http: httpx.AsyncClient, url: str, model: str, sessions: int, number: int, crowd: int
) -> Run:
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

    began_s, before = time.perf_counter(), _cpu_s(crowd)
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    took_s, after = time.perf_counter() - began_s, _cpu_s(crowd)
    return Run(took_s, after[0] - before[0], after[1] - before[1])


def _cpu_s(crowd: int) -> tuple[float, float]:
    """Return the processor time used so far: by all that counts in `Run`, and by the onlookers."""
    mine = psutil.Process()
    ours_s = theirs_s = 0.0
    for one in (mine, *mine.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            if one.pid == crowd:
                theirs_s += times.user + times.system
            elif not "".join(one.cmdline()).startswith(ENGINE):
                ours_s += times.user + times.system
    return ours_s, theirs_s


def _watched(cluster: LocalCluster, url: str) -> Watched:
    """Return what is looked at; Prometheus would scrape the router and the agents of Ray."""
    discovery = cluster.log_directory.parent / "prom_metrics_service_discovery.json"
    groups = msgspec.json.decode(discovery.read_bytes())
    agents = [target for group in groups for target in group["targets"]]
    targets = f"{url}/warmturn/metrics", *(f"http://{agent}/metrics" for agent in agents)
    return Watched(targets, f"{url}/warmturn")


if __name__ == "__main__":
    typer.run(observing)

"""Prometheus scrapes a running service, and every query of every dashboard and alert answers."""

import asyncio
import json
import math
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.live_service import free_port
from dashboards import vllm
from dashboards.alerts import ALERTS, ROUTER_JOB
from dashboards.autoscaling import NOT_ASKED
from dashboards.kv_cache import NO_AUDIT
from dashboards.panel import Query
from dashboards.promql import INTERVAL
from dashboards.recordings import RECORDINGS
from dashboards.registry import DASHBOARDS
from dashboards.render import ROOT, RULES
from dashboards.routing import NO_LIMIT, NO_TURN_WAITED
from dashboards.shared_tier import NO_SHARED
from serve_app.local_cluster import LocalCluster
from serve_app.metrics import PROMPT_TOKENS
from tests.integration.conftest import Service

SCRAPE_S = 3
WINDOW = "2m"
"""What a dashboard's interval is here."""

EXPORT_S = 20.0
"""Ray's processes tell their node's agent of metrics every few seconds; it has to be here then."""

PATIENCE_S = 60.0
"""How long all else may take on a busy machine, each."""

SESSIONS = 6
WORDS = 700
"""Prompts of about 2,700 tokens: two fill a primary cache, so some come back from the CPU."""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running Prometheus."""

    http: httpx.Client

    def query(self, expr: str) -> list[float]:
        """Return the values that a query gives now, without those that are no numbers."""
        answer = self.http.get("/api/v1/query", params={"query": expr}).json()
        assert answer["status"] == "success", f"{expr}: {answer}"
        values = [float(one["value"][1]) for one in answer["data"]["result"]]
        return [value for value in values if not math.isnan(value)]

    def targets(self) -> dict[str, set[str]]:
        """Return the health of what is scraped, by job."""
        found: dict[str, set[str]] = {}
        for one in self.http.get("/api/v1/targets").json()["data"]["activeTargets"]:
            found.setdefault(one["labels"]["job"], set()).add(one["health"])
        return found


@contextmanager
def running_prometheus(config: dict[str, Any], directory: Path) -> Iterator[Prometheus]:
    """Start Prometheus on this machine alone, and end it on the way out."""
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}", timeout=30) as http:
            assert _happens(lambda: _is_ready(http)), (directory / "log").read_text()
            yield Prometheus(http)
    finally:
        process.terminate()
        process.wait()


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/-/ready").is_success
    except httpx.TransportError:
        return False


def _happens(condition: Callable[[], bool]) -> bool:
    """Wait for something; tell whether it happened in time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(SCRAPE_S / 2)
    return True


def _config(service: Service, cluster: LocalCluster) -> dict[str, Any]:
    """Return our own prometheus.yml for this service, in a hurry."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "prometheus.yml").read_text())
    config["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), f"{SCRAPE_S}s")
    config["rule_files"] = [str(RULES)]
    ray, router = config["scrape_configs"]
    [discovery] = ray["file_sd_configs"][0]["files"]
    session = cluster.log_directory.parent
    ray["file_sd_configs"][0]["files"] = [str(session / Path(discovery).name)]
    router["static_configs"][0]["targets"] = [service.url.removeprefix("http://")]
    return config


async def _talk(service: Service, turns: int, name: str) -> int:
    """Hold conversations that use all that is measured; return the tokens of their prompts."""
    async with httpx.AsyncClient(base_url=service.url, timeout=120) as http:

        async def ask(session: str, body: dict[str, Any], path: str = "chat/completions") -> int:
            fixed = {"model": service.model, "max_tokens": 8, "ignore_eos": True}
            answer = await http.post(
                f"/v1/{path}", json=fixed | body, headers={"x-session-id": session}
            )
            answer.raise_for_status()
            whole = answer.text
            if "stream" in body:
                *_, whole = (
                    line.removeprefix("data: ")
                    for line in whole.splitlines()
                    if '"usage":{' in line
                )
            tokens: int = json.loads(whole)["usage"]["prompt_tokens"]
            return tokens

        async def converse(number: int) -> int:
            session = f"{name}-{number}"
            said = [f"{session}: " + " ".join(f"w{i}" for i in range(WORDS))]
            tokens = 0
            for turn in range(turns):
                said += ["go on"]
                # A changed system prompt breaks the prefix once; its first line never counts.
                system = f"x-anthropic-billing-header: {turn}\nYou are agent {turn > turns // 2}."
                messages = [{"role": "system", "content": system}]
                messages += [{"role": "user", "content": text} for text in said]
                streamed = {"stream": True, "stream_options": {"include_usage": True}}
                tokens += await ask(session, {"messages": messages} | streamed)
            return tokens

        sums = await asyncio.gather(*(converse(number) for number in range(SESSIONS)))
        several = await ask(name, {"prompt": ["one", "two"]}, "completions")
        return sum(sums) + several


def _unanswered(prometheus: Prometheus, queries: list[Query]) -> list[Query]:
    return [one for one in queries if not prometheus.query(one.expr.replace(INTERVAL, WINDOW))]


def _token_counts(replicas: list[str]) -> list[str]:
    """Return queries for the tokens of all prompts: as the router counts them, and the engines."""
    names = "|".join(replicas)
    engines = f'{vllm.PROMPT_TOKENS}{{{vllm.REPLICA}=~"{names}"}}'
    series = PROMPT_TOKENS.series, engines
    return [f"sum(last_over_time({one}[1m])) or vector(0)" for one in series]


def test_every_query_answers(
    service: Service,
    cluster: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But for those that say why they may not; and both ways of counting tokens agree."""
    queries = [query for one in DASHBOARDS.values() for query in one.queries]
    queries += [Query(one.name, one.name) for one in RECORDINGS]
    queries += [Query(one.value, alert.name) for alert in ALERTS for one in alert.conditions]
    with running_prometheus(_config(service, cluster), tmp_path) as prometheus:
        everything = {"ray": {"up"}, ROUTER_JOB: {"up"}}
        assert _happens(lambda: prometheus.targets() == everything), prometheus.targets()
        time.sleep(EXPORT_S)  # what was served before this test is exported by then
        replicas = httpx.get(f"{service.url}/warmturn/replicas").json()["replicas"]
        counts = _token_counts([one["replica"] for one in replicas])

        def values() -> list[float]:
            return [prometheus.query(expr)[0] for expr in counts]

        before = values()
        run = uuid.uuid4().hex
        tokens = 0
        for number in range(3):  # a rate is seen of what is there already
            time.sleep(EXPORT_S if number else 0)
            tokens += asyncio.run(_talk(service, 3, f"{run}-{number}"))

        def counted() -> list[float]:
            return [now - then for now, then in zip(values(), before, strict=True)]

        def required() -> list[Query]:
            return [one for one in _unanswered(prometheus, queries) if not one.empty_while]

        assert _happens(lambda: counted() == [tokens, tokens]), (tokens, counted())
        assert _happens(lambda: not required()), required()
        empty = _unanswered(prometheus, queries)
    with capsys.disabled():
        print(f"\n{len(queries)} queries, {len(queries) - len(empty)} with data")
        for one in empty:
            print(f"  empty: {one.legend}: {one.empty_while}: {one.expr}")
    assert {one.empty_while for one in empty} <= {
        "no request was preempted",
        "no request failed",
        NO_TURN_WAITED,
        NOT_ASKED,
        NO_SHARED,
        NO_LIMIT,
        NO_AUDIT,
    }

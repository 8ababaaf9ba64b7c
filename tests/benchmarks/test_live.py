"""The live replay, against a service whose every hit is known."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from benchmarks import live
from benchmarks.exchange import Exchange
from benchmarks.live_figures import figures
from benchmarks.live_replay import Client, Replay, ReplayError
from benchmarks.live_service import ROOT, Fleet, configure
from benchmarks.live_sessions import Pace, Script, Turn, made_up
from policies.types import ReplicaId, SessionId
from serve_app import serve_file
from tests.benchmarks.fake_service import FakeService
from tests.serving import serving

FAST = Pace(ramp_s=0.01, think_s=0.001, think_scale=0.0, max_think_s=0.01)
BLOCK = 32


async def replay(
    service: FakeService, scripts: list[Script], *, send_session_ids: bool = True
) -> Replay:
    transport = httpx.ASGITransport(app=service.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://fake") as http:
        client = await Client.connect(http, send_session_ids=send_session_ids)
        return await client.replay(scripts, lambda: None)


def measure(done: Replay, replicas: int) -> dict[str, Any]:
    return figures(done, BLOCK, replicas, slo_s=60.0)


async def test_unlimited_caches_of_sticky_sessions_capture_all_but_the_shared_prefix() -> None:
    """Nothing is evicted; what is missed is the system prompt, once on each further replica."""
    service = FakeService(replicas=2)
    done = await replay(service, made_up(6, 4, FAST, seed=1))
    row = measure(done, 2)
    assert (row["requests"], row["errors"], row["moves"]) == (24, 0, 0)
    assert row["misses"]["evicted"] == 0
    assert 0 < row["misses"]["elsewhere"] < 0.1
    shares = [row["hit_ratio"], *row["misses"].values()]
    assert sum(shares) == pytest.approx(1)
    assert row["captured_ratio"] == pytest.approx(row["hit_ratio"] / row["available_ratio"])
    assert row["goodput_rps"] == pytest.approx(24 / row["duration_s"])
    assert row["prediction_error_ratio"] is None


async def test_one_unlimited_cache_captures_everything() -> None:
    """What we call available is exactly what an engine that never evicts reuses."""
    row = measure(await replay(FakeService(replicas=1), made_up(5, 5, FAST, seed=2)), 1)
    assert row["captured_ratio"] == 1
    assert row["hit_ratio"] == row["available_ratio"] > 0.5


async def test_small_caches_evict() -> None:
    """Where one cache cannot hold all sessions, misses are evictions, and none is elsewhere."""
    service = FakeService(replicas=1, blocks=60)
    row = measure(await replay(service, made_up(6, 4, FAST, seed=1)), 1)
    assert row["misses"]["evicted"] > 0.1
    assert row["misses"]["elsewhere"] == 0
    assert row["captured_ratio"] < 0.9


async def test_without_session_ids_turns_wander() -> None:
    """No id is sent, so a service that places by it moves sessions; misses are elsewhere."""
    service = FakeService(replicas=3)
    done = await replay(service, made_up(4, 5, FAST, seed=1), send_session_ids=False)
    assert {session for session, _ in service.requests} == {None}
    row = measure(done, 3)
    assert row["moves"] > 0
    assert row["misses"]["elsewhere"] > 0.1
    assert row["misses"]["evicted"] == 0


async def test_a_turn_extends_the_answer_that_was_given() -> None:
    """Each prompt is the last one, its answer as the service gave it, and what is new."""
    service = FakeService(replicas=1)
    script = made_up(1, 3, FAST, seed=5)[0]
    done = await replay(service, [script])
    context: list[int] = []
    for turn, exchange, (session, body) in zip(
        script.turns, done.exchanges, service.replayed, strict=True
    ):
        context += turn.tokens
        assert (session, body["prompt"]) == (script.session, context)
        assert body["max_tokens"] == len(exchange.answer) == turn.answer_tokens
        context += exchange.answer


async def test_the_routers_forecast_is_compared() -> None:
    """The error is the tokens that it was off by, over all prompts' tokens."""
    service = FakeService(replicas=1)
    service.predicts_too_much_by = 3
    done = await replay(service, made_up(2, 3, FAST, seed=1))
    prompt_tokens = sum(len(one.prompt) for one in done.exchanges)
    assert measure(done, 1)["prediction_error_ratio"] == pytest.approx(18 / prompt_tokens)


async def test_failed_turns_are_counted_and_the_session_goes_on() -> None:
    """A refused and a broken answer are errors in the service's words; later turns are sent."""
    service = FakeService(replicas=1)
    service.refuse, service.break_off = {2}, {3}
    done = await replay(service, made_up(1, 5, FAST, seed=1))
    assert len(service.replayed) == 5
    assert measure(done, 1)["requests"] == 3
    refused, broken = done.errors
    assert "429" in refused
    assert "too busy" in refused
    assert "the replica is gone" in broken


async def test_a_service_that_does_not_report_cached_tokens() -> None:
    """There is no row of zeros: it says which setting is missing."""
    service = FakeService(replicas=1)
    service.reports_cached = False
    with pytest.raises(ReplayError, match="enable_prompt_tokens_details"):
        await replay(service, made_up(1, 1, FAST, seed=1))


def test_scripts_are_a_function_of_the_seed() -> None:
    """The same seed gives every router the same sessions; another one gives others."""
    assert made_up(3, 3, FAST, seed=1) == made_up(3, 3, FAST, seed=1)
    assert made_up(3, 3, FAST, seed=1) != made_up(3, 3, FAST, seed=2)


def test_a_script_ends_before_it_outgrows_the_model() -> None:
    """Prompt and answer of the last turn still fit."""
    turns = [Turn(0.0, [1] * 10, 5, extends=number > 0) for number in range(4)]
    script = Script(SessionId("s"), turns)
    assert len(script.fitting(60).turns) == 4
    assert len(script.fitting(59).turns) == 3
    assert script.fitting(14).turns == []


def exchange(replica: str, sent_s: float, ended_s: float) -> Exchange:
    """A request that ran there from then till then."""
    return Exchange(SessionId("s"), ReplicaId(replica), [1], [2], 0, None, sent_s, sent_s, ended_s)


def test_dispersion_is_averaged_over_the_time_in_which_something_runs() -> None:
    """Two on one of two replicas is 1, one on each is 0, and idle time does not count."""
    crowded = [exchange("a", 0.0, 1.0), exchange("a", 0.0, 1.0)]
    even = [exchange("a", 5.0, 8.0), exchange("b", 5.0, 8.0)]
    assert figures(Replay(crowded), BLOCK, 2, 1.0)["dispersion"] == pytest.approx(1)
    assert figures(Replay(even), BLOCK, 2, 1.0)["dispersion"] == pytest.approx(0)
    both = figures(Replay(crowded + even), BLOCK, 2, 1.0)
    assert both["dispersion"] == pytest.approx(0.25)


def test_a_replay_in_which_everything_failed_has_a_row() -> None:
    """Nothing is divided by nothing."""
    row = figures(Replay(errors=["no"]), BLOCK, None, 1.0)
    assert (row["requests"], row["errors"], row["replicas"]) == (0, 1, 0)
    assert row["ttft_s"]["p50"] is row["hit_ratio"] is row["dispersion"] is None


@pytest.fixture
def served() -> Iterator[tuple[FakeService, str]]:
    """A fake service behind a real port, and its URL."""
    service = FakeService(replicas=2)
    with serving(service.app) as url:
        yield service, url


def test_the_command_prints_and_writes_a_row(
    served: tuple[FakeService, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON file has one object, with the keys that scripts read; the table has its figures."""
    out = tmp_path / "live.json"
    live.live(sessions=3, turns=3, url=served[1], think_s=0.01, ramp_s=0.1, json_file=out)
    written = json.loads(out.read_text())
    assert written["command"].startswith("python -m benchmarks.live")
    [row] = written["results"]
    assert (row["policy"], row["replicas"], row["load"], row["seed"]) == ("as deployed", 2, 1.5, 0)
    assert (row["requests"], row["errors"], row["moves"], row["splits"]) == (9, 0, 0, 0)
    assert row["ttft_s"].keys() == row["e2e_s"].keys() == {"p50", "p90", "p99"}
    assert 0 < row["ttft_s"]["p50"] <= row["e2e_s"]["p50"]
    printed = capsys.readouterr().out
    assert f"{row['hit_ratio']:.3f}" in printed
    assert all(len(line) <= 80 for line in printed.splitlines())


def test_the_command_replays_a_trace(
    served: tuple[FakeService, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prompts are the trace's blocks, scaled; a session of too long prompts is left out."""
    service, url = served
    recorded = [
        {"id": "long", "in": [64 * 3000]},
        {"id": "short", "in": [640, 960, 1280]},
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(_session(**one)) + "\n" for one in recorded))
    live.live(sessions=1, url=url, trace=trace, tokens_per_block=4, think_scale=0.0, ramp_s=0.1)
    prompts = [body["prompt"] for _, body in service.replayed]
    assert [len(prompt) for prompt in prompts] == [40, 60, 80]
    assert prompts[1][:40] == prompts[0]
    assert {body["max_tokens"] for _, body in service.replayed} == {8}
    with pytest.raises(typer.Exit):
        live.live(sessions=2, url=url, trace=trace, tokens_per_block=4)
    assert "only 1 sessions fit a context of 4096 tokens" in capsys.readouterr().err


def _session(**fields: Any) -> dict[str, Any]:
    requests = [
        {"type": "n", "in": tokens, "out": 128, "hash_ids": [[1, tokens // 64]], "think_time": 1.0}
        for tokens in fields["in"]
    ]
    sizes = {"block_size": 64, "tool_tokens": 128, "system_tokens": 64}
    return {"id": fields["id"], "requests": requests} | sizes


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    """Both of --url and --routers or none; no service there; a router that nobody knows."""
    for url, routers in (("", ""), ("http://x", "warmturn")):
        with pytest.raises(typer.BadParameter, match="--routers"):
            live.live(url=url, routers=routers)
    with pytest.raises(typer.Exit):
        live.live(url="http://127.0.0.1:1", sessions=1)
    assert "cannot replay: All connection attempts failed" in capsys.readouterr().err
    with pytest.raises(typer.Exit):
        live.live(routers="warmturn,no_such_router")
    assert "router" in capsys.readouterr().err


def test_a_routers_service() -> None:
    """serve.yaml with the router, and small primary caches that are all there is."""
    base = serve_file.load(ROOT / "serve.yaml")
    fleet = Fleet(replicas=3, blocks=200, block_size=16)
    content = configure(base, "round_robin", fleet, port=1234)
    assert content["http_options"]["port"] == 1234
    app = serve_file.app(content)
    assert app["args"]["router"] == "round_robin"
    assert app["args"]["kv_offload_gib"] == 0
    assert app["args"]["engine"]["num_gpu_blocks_override"] == 200
    assert app["args"]["engine"]["block_size"] == 16
    assert next(one for one in app["deployments"] if one["name"] == "engine")["num_replicas"] == 3
    assert base == serve_file.load(ROOT / "serve.yaml")

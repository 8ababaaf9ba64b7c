"""Turns go through a router actor into a file, and come back from there as sessions to replay."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.block_names import ids_of
from benchmarks.traces import read_sessions
from policies.tunables import Tunables
from policies.types import RequestId, SessionId
from serve_app import open_turn, router_actor, turn_recorder
from serve_app.config import RecordConfig
from serve_app.replica_report import Outcome, TurnEnd
from serve_app.route_request import RouteRequest, SentBody
from serve_app.router_actor import RouterActor
from tests.makers import GATEWAY, make_report, make_turn
from tests.policies.makers import BLOCK_SIZE, make_state
from tests.test_router_actor import R1

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
FULL = make_state("r1", total_blocks=10, free_blocks=0)
SYSTEM = (1, 2)


class Clock:
    """A clock that stands still until it is moved; in place of `time` and `datetime`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return 100.0 + self.now_s

    def time(self) -> float:
        return BEGAN.timestamp() + self.now_s

    def now(self, _: Any) -> datetime:
        return BEGAN + timedelta(seconds=self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The router's clocks."""
    stopped = Clock()
    monkeypatch.setattr(router_actor, "time", stopped)
    monkeypatch.setattr(open_turn, "datetime", stopped)
    return stopped


class Recorded:
    """A router actor that records to a file, and turns that go through it."""

    def __init__(self, clock: Clock, path: Path) -> None:
        self.actor = RouterActor()
        self.clock = clock
        self.path = path

    async def begin(self, tunables: Tunables | None = None) -> None:
        """Let the replica report, and recording begin."""
        await self.actor.report(make_report("r1"))
        record = RecordConfig(path=self.path)
        await self.actor.configure(tunables or Tunables(), record, GATEWAY)

    async def end(self) -> None:
        """Record no more."""
        await self.actor.configure(Tunables(), None, GATEWAY)
        await until(lambda: all(one.name != "record" for one in threading.enumerate()))

    async def turn(
        self, asked: RouteRequest, at_s: float, ended_s: float, output_tokens: int = 5, **more: Any
    ) -> None:
        """Let a turn arrive and end; its first token comes at half time."""
        self.clock.now_s = at_s
        await self.actor.decide(asked, {R1: 64})
        self.clock.now_s = (at_s + ended_s) / 2
        await self.actor.report(make_report("r1", batch=None, first_tokens=(asked.request,)))
        self.clock.now_s = ended_s
        took_s = ended_s - at_s
        fields = {"cached_tokens": 4, "ttft_s": took_s / 2, "e2e_s": took_s} | more
        end = TurnEnd(
            asked.request,
            prompt_tokens=asked.prompt_tokens,
            output_tokens=output_tokens,
            **fields,
        )
        await self.actor.report(make_report("r1", ends=(end,)))

    async def lines(self, count: int) -> list[dict[str, Any]]:
        """Return the lines once there are so many."""
        await until(lambda: self.path.exists() and self.path.read_text().count("\n") >= count)
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    async def counted(self) -> dict[str, float]:
        """Return the counters of recording, by name and reason."""
        return {
            "/".join((one.metric.removeprefix("warmturn_"), *one.labels)): one.value
            for one in await self.actor.samples()
            if "recorded_turns" in one.metric
        }


async def until(condition: Callable[[], Any]) -> None:
    """Wait for another thread."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def recorded(clock: Clock, tmp_path: Path) -> Any:
    """An actor that records."""
    found = Recorded(clock, tmp_path / "turns.jsonl")
    await found.begin()
    yield found
    await found.end()
    if found.actor._clock:
        found.actor._clock.cancel()


async def test_a_recording_is_replayed_as_it_was(recorded: Recorded) -> None:
    """Tokens, pauses, the sessions' own blocks and those that they share."""
    await recorded.turn(make_turn("a1", *SYSTEM, 3, session="a"), 0, 2, 7)
    await recorded.turn(make_turn("b1", *SYSTEM, 4, session="b"), 3, 4)
    await recorded.turn(make_turn("a2", *SYSTEM, 3, 5, 6, session="a"), 10, 12)
    await recorded.lines(3)
    a, b = read_sessions(recorded.path)
    assert (a.session, b.session, a.scope, a.block_size) == ("a", "b", "turns.jsonl", BLOCK_SIZE)
    assert [(one.prompt_tokens, one.output_tokens) for one in a.requests] == [(14, 7), (22, 5)]
    assert [one.think_s for one in a.requests] == [0, pytest.approx(8)]
    first, second = (ids_of(one.hash_ids).tolist() for one in a.requests)
    [other] = (ids_of(one.hash_ids).tolist() for one in b.requests)
    assert second[:3] == first
    assert set(second) & set(other) == set(range(a.common_below)) == set(first[:2])
    assert len(set(second)) == 5


async def test_what_a_line_has(recorded: Recorded) -> None:
    """What became of a turn; the blocks of its session's last line are left out."""
    await recorded.turn(make_turn("a1", 1, 2, session="a"), 0, 2)
    asked = make_turn("a2", 1, 2, 3, session="a")
    asked.sent = SentBody("/v1/messages", b'{"model": "m"}')
    await recorded.turn(asked, 10, 12)
    first, line = await recorded.lines(2)
    assert (first.get("same_blocks"), line["same_blocks"]) == (None, 2)
    assert line["arrived_at"] == "2026-01-31T12:00:10Z"
    assert (line["request"], line["session"], line["replica"]) == ("http-a2", "a", "r1")
    assert (line["ttft_s"], line["e2e_s"], line["waited_s"]) == (1, 2, 0)
    assert (line["outcome"], line["rule"], line["block_size"]) == ("answered", "stayed", 4)
    assert line["cached_tokens"] == sum(line["cached"].values()) == 4
    assert sum(line["cached"].values()) + sum(line["missed"].values()) == line["prompt_tokens"]
    assert line["expected_ttft_s"] > 0
    assert (line["path"], json.loads(line["body"])) == ("/v1/messages", {"model": "m"})
    assert "body" not in first
    assert recorded.path.stat().st_mode & 0o777 == 0o600


async def test_turns_that_came_to_nothing_are_recorded_too(recorded: Recorded) -> None:
    """Failed ones, those whose client left, also before they had a replica, and lost ones."""
    unread = make_turn("unread", session="a")
    unread.not_rendered, unread.prompt_tokens = "image", 50
    await recorded.turn(unread, 0, 1, outcome=Outcome.ABORTED)
    await recorded.turn(
        make_turn("failed", 1, session="a"), 2, 3, 0, ttft_s=None, outcome=Outcome.FAILED
    )
    await recorded.actor.decide(make_turn("lost", 1, session="a"), {R1: 64})
    await recorded.actor.report(make_report("r1", state=FULL))
    waiting = make_turn("waiting", 1, 2, session="b")
    assert await recorded.actor.decide(waiting, {R1: 64}) is None
    await recorded.actor.give_up(waiting.request)
    recorded.clock.now_s += turn_recorder.UNHEARD_S + 1
    recorded.actor._let_go(recorded.clock.monotonic())
    lines = {one["request"]: one for one in await recorded.lines(4)}
    outcomes = {name: one["outcome"] for name, one in lines.items()}
    assert outcomes == {
        "http-unread": "aborted",
        "http-failed": "failed",
        "http-lost": "lost",
        "http-waiting": "aborted",
    }
    assert lines["http-unread"]["not_rendered"] == "image"
    assert lines["http-unread"]["prompt_tokens"] == 50
    assert "replica" not in lines["http-waiting"]
    [a] = read_sessions(recorded.path)
    assert [one.prompt_tokens for one in a.requests] == [50]


async def test_a_turn_that_is_turned_away_is_recorded_at_once(recorded: Recorded) -> None:
    """With how long it waited for a place."""
    await recorded.begin(Tunables(ttft_slo_s=0, max_late_ratio=0))
    for number in range(20):
        asked = make_turn(f"q{number}", number, session=f"s{number}")
        await recorded.turn(asked, 1, 2)
    recorded.actor._let_go(recorded.clock.monotonic())
    assert await recorded.actor.decide(make_turn("new", 50, session="new"), {R1: 64}) is None
    recorded.clock.now_s += 30
    recorded.actor._let_go(recorded.clock.monotonic())
    *_, line = await recorded.lines(21)
    assert (line["request"], line["session"], line["outcome"]) == ("http-new", "new", "refused")
    assert line["waited_s"] == 30
    assert "replica" not in line


async def test_a_decision_that_nobody_followed_is_not_told(recorded: Recorded) -> None:
    """It came too late: the gateway sent the turn elsewhere by itself."""
    asked = make_turn("a1", 1, session="a")
    await recorded.actor.decide(asked, {R1: 64})
    await recorded.actor.give_up(asked.request)
    end = TurnEnd(asked.request, 6, 0, 5, 0.25, 0.5)
    await recorded.actor.report(make_report("r2", ends=(end,)))
    [line] = await recorded.lines(1)
    assert (line["replica"], line["ttft_s"], line["outcome"]) == ("r2", 0.25, "answered")
    assert not {"rule", "expected_ttft_s"} & set(line)
    told = await recorded.actor.decision("http-a1")
    assert told is not None
    assert (told["replica"], told["outcome"]["replica"]) == ("r1", "r2")
    story = await recorded.actor.session(SessionId("a"))
    assert story is not None
    assert [turn["replica"] for turn in story["turns"]] == ["r2"]
    counted = {one.metric: one.value for one in await recorded.actor.samples()}
    assert counted["warmturn_compared_turns"] == 0


async def test_a_turn_that_is_asked_for_again_is_given_up_no_longer(recorded: Recorded) -> None:
    """Its gateway did without the router for a moment; it is lost if that one dies."""
    asked = make_turn("a1", 1, session="a")
    await recorded.actor.decide(asked, {R1: 64})
    await recorded.actor.give_up(asked.request)
    await recorded.actor.decide(asked, {R1: 64})
    recorded.clock.now_s += turn_recorder.UNHEARD_S + 1
    recorded.actor._let_go(recorded.clock.monotonic())
    assert [one["outcome"] for one in await recorded.lines(1)] == ["lost"]


COUNTS = {
    "unread": (50, 4, 50, True),
    "as it was read": (10, 4, 10, False),
    "for several answers": (20, 8, 10, False),
    "not at all": (0, 0, 10, False),
}
"""Prompt and cached tokens of the engine, prompt tokens of the line, whether it was not read."""


@pytest.mark.parametrize("counts", COUNTS)
async def test_tokens_add_up_or_are_not_told(recorded: Recorded, counts: str) -> None:
    """Nothing is said of the tokens of a prompt of which the engine did not compute just these."""
    engine_tokens, cached_tokens, prompt_tokens, is_unread = COUNTS[counts]
    asked = make_turn("a1", 1, 2, session="a")
    if is_unread:
        asked = replace(make_turn("a1", session="a"), not_rendered="image", prompt_tokens=30)
    await recorded.actor.decide(asked, {R1: 64})
    end = TurnEnd(asked.request, engine_tokens, cached_tokens, 5, 0.25, 0.5)
    await recorded.actor.report(make_report("r1", ends=(end,)))
    [line] = await recorded.lines(1)
    assert line["prompt_tokens"] == prompt_tokens
    cached, missed = line.get("cached", {}), line.get("missed", {})
    told = await recorded.actor.decision("http-a1")
    assert told is not None
    if engine_tokens == 10:
        assert sum(cached.values()) == line["cached_tokens"]
        assert sum(cached.values()) + sum(missed.values()) == prompt_tokens
        assert told["outcome"]["tokens"]
    else:
        assert (cached, missed, told["outcome"]["tokens"]) == ({}, {}, None)


async def test_a_turn_that_still_runs_is_not_over(recorded: Recorded) -> None:
    """However long it takes: its replica says that it has it."""
    asked = make_turn("long", 1, session="a")
    await recorded.actor.decide(asked, {R1: 64})
    await recorded.actor.report(make_report("r1", turns=frozenset({asked.request})))
    for _ in range(3):
        recorded.clock.now_s += turn_recorder.UNHEARD_S * 0.7
        await recorded.actor.report(make_report("r1", turns=frozenset({asked.request})))
        recorded.actor._let_go(recorded.clock.monotonic())
    assert not recorded.path.exists()


async def test_turns_that_nobody_saw_arrive_are_counted(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another router's time, and those that find no room."""
    end = TurnEnd(RequestId("unknown"), 14, 4, 5, 0.25)
    await recorded.actor.report(make_report("r1", ends=(end,)))
    monkeypatch.setattr(turn_recorder, "MAX_OPEN_BYTES", 100)
    await recorded.turn(make_turn("a1", 1, session="a"), 0, 2)
    assert (await recorded.counted())["unrecorded_turns/unseen"] == 2


async def test_a_turn_has_one_line(recorded: Recorded) -> None:
    """Also where it is tried again as its replica seems lost, and that one ends it after all."""
    asked = make_turn("a1", 1, session="a")
    await recorded.turn(asked, 0, 2)
    await recorded.turn(asked, 3, 4)
    recorded.clock.now_s += turn_recorder.UNHEARD_S + 1
    recorded.actor._let_go(recorded.clock.monotonic())
    await recorded.turn(make_turn("b1", 1, session="b"), 50, 51)
    assert [one["request"] for one in await recorded.lines(2)] == ["http-a1", "http-b1"]
    assert (await recorded.counted())["unrecorded_turns/unseen"] == 0


async def test_a_turn_that_nobody_saw_arrive_is_counted_once(recorded: Recorded) -> None:
    """However often its replica tells of it."""
    end = TurnEnd(RequestId("unknown"), 14, 4, 5, 0.25)
    for _ in range(2):
        await recorded.actor.report(make_report("r1", batch=None, ends=(end,)))
    assert (await recorded.counted())["unrecorded_turns/unseen"] == 1


async def test_a_missing_directory_harms_no_turn(
    recorded: Recorded, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, counted, and told; recording begins when the directory is there."""
    recorded.path = tmp_path / "missing" / "turns.jsonl"
    config = RecordConfig(path=recorded.path)
    await recorded.actor.configure(Tunables(), config, GATEWAY)
    for number in range(2):
        await recorded.turn(make_turn(f"a{number}", 1, session="a"), number, number)
    recorder = recorded.actor._turns.recorder
    assert recorder is not None
    await until(lambda: recorded.actor._turns._counts.failed == 2)
    status = (await recorded.actor.configure(Tunables(), config, GATEWAY)).record
    assert status is not None
    assert status.path == str(recorded.path)
    assert "No such file" in str(status.error)
    assert [one.levelname for one in caplog.records if "not recorded" in one.message] == ["ERROR"]
    recorded.path.parent.mkdir()
    await recorded.turn(make_turn("a3", 1, session="a"), 3, 3)
    await recorded.lines(1)
    assert await recorded.counted() == {
        "recorded_turns": 1,
        "unrecorded_turns/unseen": 0,
        "unrecorded_turns/dropped": 0,
        "unrecorded_turns/failed": 2,
    }


async def test_recording_ends_when_the_setting_goes(recorded: Recorded) -> None:
    """What was said until then stays, and no more comes."""
    await recorded.turn(make_turn("a1", 1, session="a"), 0, 2)
    assert (await recorded.actor.configure(Tunables(), None, GATEWAY)).record is None
    await recorded.turn(make_turn("a2", 1, session="a"), 3, 4)
    assert len(await recorded.lines(1)) == 1


async def test_gateways_that_leave_have_no_say(recorded: Recorded) -> None:
    """New settings come with new gateways, and the old ones speak until their last answer ends."""
    config, old = RecordConfig(path=recorded.path), replace(GATEWAY, gateway="g0", started_at_s=-1)
    asked = make_turn("a1", 1, session="a")
    await recorded.actor.decide(asked, {R1: 64})
    status = await recorded.actor.configure(Tunables(stickiness_s=60), None, old)
    assert status.record is not None
    assert status.tunables == Tunables()
    end = TurnEnd(asked.request, 6, 0, 5, 0.25, 0.5)
    await recorded.actor.report(make_report("r1", ends=(end,)))
    assert [one["request"] for one in await recorded.lines(1)] == ["http-a1"]
    recorded.clock.now_s += router_actor.SILENT_S + 1
    recorded.actor._let_go(recorded.clock.monotonic())
    assert (await recorded.actor.configure(Tunables(), None, old)).record is None
    assert (await recorded.actor.configure(Tunables(), config, GATEWAY)).record is not None


async def test_a_restarted_router_appends(recorded: Recorded) -> None:
    """To what another one wrote, with whole blocks and on a line of its own."""
    await recorded.turn(make_turn("a1", 1, 2, session="a"), 0, 2)
    await recorded.lines(1)
    await recorded.end()
    with recorded.path.open("a") as file:
        file.write('{"arrived_at": "20')
    another = Recorded(recorded.clock, recorded.path)
    await another.begin()
    await another.turn(make_turn("a2", 1, 2, 3, session="a"), 5, 6)
    await until(lambda: recorded.path.read_text().count("\n") == 3)
    await another.end()
    assert another.actor._clock is not None
    another.actor._clock.cancel()
    [a] = read_sessions(recorded.path)
    assert [one.hash_ids for one in a.requests] == [(range(2),), (range(3),)]

"""A day in which replicas come and go: what is paid, who is asked, and what others' rules say."""

from pathlib import Path

import pytest
import typer

from benchmarks.autoscale import main, simulate
from benchmarks.autoscalers.autoscaler import Autoscaler, View
from benchmarks.autoscalers.kubernetes import KvUse, QueueLength
from benchmarks.autoscalers.llmd_saturation import LlmdSaturation
from benchmarks.autoscalers.operator import Change, oscillations
from benchmarks.autoscalers.ray_serve import RayServe
from benchmarks.autoscalers.registry import AUTOSCALERS, make_autoscaler
from benchmarks.autoscalers.setting import Setting
from benchmarks.generated_sessions import generate_sessions
from benchmarks.simulator.day import Day
from benchmarks.simulator.presets import PRESETS
from benchmarks.trace_options import fit, share_prefix
from policies.router import Router
from policies.tunables import Tunables
from policies.victims import Seat
from tests.policies.makers import make_state

pytestmark = pytest.mark.slow

HARDWARE = PRESETS["kimi-b200-host"]
SESSIONS = fit(share_prefix(generate_sessions(60, 1)), HARDWARE.max_context_tokens, 60.0)
SETTING = Setting(
    HARDWARE,
    plateau=16,
    day_s=3600.0,
    replicas=1,
    max_replicas=6,
    start_s=60.0,
    seed=1,
    merged=16,
)
"""An hour for a day."""


def make_view(*kv_use_ratios: float, waiting: int = 0, running: int = 0, starting: int = 0) -> View:
    """Return a fleet; each replica has as many requests."""
    states = [
        make_state(
            f"r{number}",
            free_blocks=round(1000 * (1 - kv_use)),
            waiting=waiting,
            running=running,
        )
        for number, kv_use in enumerate(kv_use_ratios)
    ]
    seats = tuple(Seat(state.replica, node=state.replica) for state in states)
    return View(states, seats, starting, len(states) + starting, Router(Tunables()))


def decide(autoscaler: Autoscaler, view: View, seconds: int) -> list[int]:
    """Return what is wanted every ten seconds while all stays as it is."""
    return [autoscaler.tick(view, float(now_s)).replicas for now_s in range(0, seconds, 10)]


@pytest.mark.parametrize("spec", [*AUTOSCALERS, "fixed:replicas=2"])
def test_a_day(spec: str) -> None:
    """All requests are counted, replicas are paid for, and the bounds hold."""
    result = simulate(spec, SESSIONS, SETTING)
    assert result.requests > 500
    assert 0 <= result.slo_misses <= result.requests
    assert 1 <= result.replica_hours <= 6
    assert result.changes == len(result.history)
    assert all(1 <= count <= 6 for _, count, _ in result.history)


def test_warmturn_is_repeatable_and_calm() -> None:
    """The same seed gives the same day, in which no replicas come, go and come again at once."""
    first = simulate("warmturn", SESSIONS, SETTING)
    assert first == simulate("warmturn", SESSIONS, SETTING)
    assert first.oscillations == 0
    assert first.changes
    assert all("needed" in why or "drained" in why for *_, why in first.history)


def test_the_day() -> None:
    """Sessions come and go as the day says, some of them all at once."""
    day = Day(SESSIONS, 16, 3600.0, seed=1, merged=16)
    assert [day.live(3600.0 * part) for part in (0, 0.3, 0.46, 0.66, 1)] == [2, 16, 28, 32, 2]
    times = sorted(at_s for at_s, _ in day.start())
    assert sum(at_s < 288 for at_s in times) == 2
    assert sum(1584 <= at_s < 1650 for at_s in times) == 12


def test_kv_use() -> None:
    """The least number with a use of 0.8, but not within a tenth of it, and down after 300 s."""
    assert decide(KvUse(), make_view(1.0, 1.0, 1.0), 10) == [4]
    assert decide(KvUse(), make_view(0.85, 0.85), 10) == [2]
    wanted = decide(KvUse(), make_view(0.1, 0.1, 0.1), 310)
    assert set(wanted) == {1}
    calm = KvUse()
    calm.tick(make_view(0.8, 0.8, 0.8), 0.0)
    assert calm.tick(make_view(0.1, 0.1, 0.1), 290.0).replicas == 3
    assert calm.tick(make_view(0.1, 0.1, 0.1), 300.0).replicas == 1


def test_queue_length() -> None:
    """Five waiting requests a replica; at most twice as many or four more at once."""
    assert decide(QueueLength(), make_view(0.5, 0.5, waiting=7), 10) == [3]
    assert decide(QueueLength(), make_view(0.5, waiting=100), 10) == [5]


def test_ray_serve() -> None:
    """Two requests a replica, after 30 s up and after 600 s down."""
    assert decide(RayServe(), make_view(0.5, running=4, waiting=2), 40) == [1, 1, 1, 3]
    assert decide(RayServe(), make_view(0.5, 0.5), 610)[-2:] == [2, 1]


def test_llmd_saturation() -> None:
    """One more where little is to spare and none is starting; one less if the others could."""
    assert decide(LlmdSaturation(), make_view(0.75, 0.75), 10) == [3]
    assert decide(LlmdSaturation(), make_view(0.9, 0.9), 10) == [3]
    assert decide(LlmdSaturation(), make_view(0.75, 0.75, starting=1), 10) == [3]
    assert decide(LlmdSaturation(), make_view(0.5, waiting=3), 10) == [2]
    assert decide(LlmdSaturation(), make_view(0.2, 0.2), 10) == [1]
    assert decide(LlmdSaturation(), make_view(0.4, 0.4), 10) == [2]


def test_oscillations() -> None:
    """Up, down and up again count if they happen within ten minutes."""
    steps = [(0, 1, 2), (100, 2, 1), (500, 1, 2), (900, 2, 3), (1400, 3, 2), (2000, 2, 3)]
    assert oscillations([Change(float(at_s), a, b, "") for at_s, a, b in steps]) == 1


@pytest.mark.parametrize("spec", ["unknown", "ray-serve:target=1", "warmturn:colour=1"])
def test_unknown_names(spec: str) -> None:
    """What is not known is refused."""
    with pytest.raises(ValueError, match=spec.split(":")[0]):
        make_autoscaler(spec, 256, SETTING)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"hardware": "abacus"}, "there is no abacus"),
        ({"policies": "nobody"}, "there is no autoscaler nobody"),
        ({"seed": "one"}, "one"),
        ({}, "No such file"),
    ],
)
def test_what_is_refused(tmp_path: Path, wrong: dict[str, str], why: str) -> None:
    """Before anything is simulated, with the reason."""
    with pytest.raises(typer.BadParameter, match=why):
        main(tmp_path / "nowhere", **wrong)  # type: ignore[arg-type]  # strings all

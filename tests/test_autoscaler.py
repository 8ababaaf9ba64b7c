"""What Serve's controller gets from the autoscaling policy, ten times a second."""

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from serve_app import autoscaler
from serve_app.autoscaler import PERIOD_S, TIMEOUT_S, CacheAutoscaler
from serve_app.scaling import ScaleQuestion


class Asked(CacheAutoscaler):
    """An autoscaler whose questions the test answers."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.questions: list[ScaleQuestion] = []
        self.answers: list[Future[int]] = []

    def _send(self, app: str, question: ScaleQuestion) -> Future[int]:
        assert app == "app"
        self.questions.append(question)
        self.answers.append(Future())
        return self.answers[-1]


class Clock:
    """Time as the test sets it."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(autoscaler, "time", made)
    return made


def ctx(target: int = 2, running: int = 2) -> Any:
    """Return what Serve hands over; it has no metrics of the deployment yet."""
    return SimpleNamespace(
        app_name="app",
        target_num_replicas=target,
        current_num_replicas=running,
        total_queued_requests=3.0,
        running_replicas=[SimpleNamespace(unique_id=f"r{i}") for i in range(running)],
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=4,
        aggregated_metrics={},
        raw_metrics={},
    )


def test_the_answer_holds_once_it_is_there(clock: Clock) -> None:
    """Until then the target stays; the question has Serve's bounds."""
    policy = Asked(target_hit_ratio=0.9)
    assert policy(ctx()) == (2, {})
    assert policy(ctx()) == (2, {})
    [question] = policy.questions
    assert question.running == {"r0", "r1"}
    assert question.queued == 3.0
    assert question.settings.target_hit_ratio == 0.9
    assert (question.settings.min_replicas, question.settings.max_replicas) == (1, 4)
    policy.answers[0].set_result(4)
    assert policy(ctx()) == (4, {})
    assert policy(ctx(target=4)) == (4, {})
    clock.now_s += PERIOD_S + 0.1
    policy(ctx(target=4))
    assert [one.target for one in policy.questions] == [2, 4]


def test_a_router_that_is_silent(clock: Clock) -> None:
    """The target stays, and the question is asked again after a while."""
    policy = Asked()
    policy(ctx())
    clock.now_s += PERIOD_S + 0.1
    assert policy(ctx()) == (2, {})
    assert len(policy.questions) == 1
    clock.now_s += TIMEOUT_S
    assert policy(ctx()) == (2, {})
    assert len(policy.questions) == 2


def test_a_router_that_fails(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised, as Serve could deploy nothing then; it is logged, but not each time."""
    policy = Asked()
    with caplog.at_level(logging.ERROR, "ray.serve"):
        for _ in range(3):
            policy(ctx())
            policy.answers[-1].set_exception(RuntimeError("gone"))
            assert policy(ctx()) == (2, {})
            clock.now_s += PERIOD_S + 0.1
    assert sum(record.message.count("gone") for record in caplog.records) == 1


@pytest.mark.parametrize("wrong", [{"target_hit": 1}, {"calm_s": "soon"}])
@pytest.mark.usefixtures("clock")
def test_settings_that_are_refused(wrong: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """The target stays, and the log names the setting."""
    with caplog.at_level(logging.ERROR, "ray.serve"):
        assert Asked(**wrong)(ctx()) == (2, {})
    assert next(iter(wrong)) in caplog.text

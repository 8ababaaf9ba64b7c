"""What unit and integration tests share."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from serve_app import packaged_model

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")  # machines that run these tests may be busy

SMOLLM2 = Path(__file__).parents[1] / "models" / packaged_model.NAME


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The packaged model, made once per checkout."""
    if not packaged_model.is_prepared(SMOLLM2):
        packaged_model.prepare(SMOLLM2)
    return SMOLLM2


@pytest.fixture(autouse=True)
def root_level() -> None:
    """Let each test see warnings: what vLLM imports lets the root logger pass errors alone."""
    logging.getLogger().setLevel(logging.WARNING)


@pytest.fixture
async def actor() -> AsyncIterator[Any]:
    """A router actor without Ray around it, whose clock is stopped at the end."""
    from serve_app.router_actor import RouterActor  # it imports Ray, which most tests need not

    made = RouterActor()
    yield made
    if made._clock:
        made._clock.cancel()

"""What unit and integration tests share."""

import logging
from pathlib import Path

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

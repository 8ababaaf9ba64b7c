"""What unit and integration tests share."""

from pathlib import Path

import pytest

from serve_app import packaged_model

SMOLLM2 = Path(__file__).parents[1] / "models" / packaged_model.NAME


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The packaged model, made once per checkout."""
    if not packaged_model.is_prepared(SMOLLM2):
        packaged_model.prepare(SMOLLM2)
    return SMOLLM2

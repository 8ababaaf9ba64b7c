"""What an engine's log says of the shared tier's directory when it starts."""

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from serve_app.kv_directory import KvDirectory
from serve_app.tier_directory import logger, open_directory


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Collect what is logged of directories."""
    lines = Lines()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(lines)
    yield lines.texts
    logger.removeHandler(lines)
    logger.setLevel(before)


def opened(root: Path, max_bytes: int = 2**30) -> None:
    """Open a directory as an engine does."""
    open_directory(KvDirectory(root, "model", 10, max_bytes), root, max_bytes)


def test_one_of_our_own_is_told(tmp_path: Path, log: list[str]) -> None:
    """With its path and its bound, and nothing else."""
    opened(tmp_path / "kv")
    (line,) = log
    assert str(tmp_path / "kv") in line
    assert "1.0 GiB" in line


def test_one_that_others_can_write_to_is_told(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its mode, or as it's another user's, who made it before us in a place that all share."""
    tmp_path.chmod(0o1777)
    opened(tmp_path)
    assert "others can write" in log[-1]
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    log.clear()
    opened(tmp_path)
    assert "others can write" in log[-1]


def test_a_disk_smaller_than_the_bound_is_told(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the tier will fill it and then never change."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=2**29))
    opened(tmp_path / "kv")
    assert "0.5 GiB in all" in log[-1]

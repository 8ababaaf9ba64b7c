"""The file of recorded turns, and what operators, disks and other processes do to it meanwhile."""

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.record_file import RecordFile


def append(file: RecordFile, *lines: bytes) -> list[bool]:
    """Write lines; return before which of them a file began."""
    began = []
    for line in lines:
        began.append(file.prepare())
        file.append(line)
    return began


def test_a_file_is_bounded(tmp_path: Path) -> None:
    """At half of its bound it becomes the older one, and that one goes."""
    path = tmp_path / "turns.jsonl"
    file = RecordFile(path, 40)
    assert append(file, *[b"%09d" % n for n in range(7)]) == [True, False] * 3 + [True]
    assert path.read_bytes() == b"000000006\n"
    assert (tmp_path / "turns.jsonl.1").read_bytes() == b"000000004\n000000005\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_is_moved_or_cut_begins_anew(tmp_path: Path) -> None:
    """So an operator may take it away at any time."""
    path = tmp_path / "turns.jsonl"
    file = RecordFile(path, 1000)
    append(file, b"1")
    path.rename(tmp_path / "taken")
    assert append(file, b"2", b"3") == [True, False]
    path.write_bytes(b"")
    assert append(file, b"4") == [True]
    assert path.read_bytes() == b"4\n"
    assert (tmp_path / "taken").read_bytes() == b"1\n"


def test_a_line_that_was_cut_off_stays_alone(tmp_path: Path) -> None:
    """The next one begins behind it; the file keeps its mode."""
    path = tmp_path / "turns.jsonl"
    path.write_bytes(b"half a li")
    append(RecordFile(path, 1000), b"whole")
    assert path.read_bytes() == b"half a li\nwhole\n"


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    """It names sessions, and may have what was said."""
    path = tmp_path / "turns.jsonl"
    append(RecordFile(path, 1000), b"1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_do_not_write_one_file(tmp_path: Path) -> None:
    """Else the lines of one would be taken for the other's; the second waits until it is free."""
    path = tmp_path / "turns.jsonl"
    first, second = RecordFile(path, 1000), RecordFile(path, 1000)
    append(first, b"1")
    with pytest.raises(OSError, match="another process records here"):
        second.prepare()
    first.close()
    append(second, b"2")
    assert path.read_bytes() == b"1\n2\n"


@pytest.mark.parametrize("path", [".", "missing/turns.jsonl", "/dev/full"])
def test_what_cannot_be_written(path: str, tmp_path: Path) -> None:
    """A directory, a file in one that is not there, a full disk: an error each time."""
    file = RecordFile(tmp_path / path, 1000)
    for _ in range(2):
        with pytest.raises(OSError, match=r"Is a directory|No such file|No space left"):
            append(file, b"1")


def test_one_that_is_taken_away_when_it_is_full_begins_anew(tmp_path: Path) -> None:
    """An operator's move may come when it was about to become the older one."""
    path = tmp_path / "turns.jsonl"
    file = RecordFile(path, 4)
    append(file, b"1")
    path.rename(tmp_path / "taken")
    assert append(file, b"2") == [True]
    assert path.read_bytes() == b"2\n"


def test_one_that_was_found_full_becomes_the_older_one(tmp_path: Path) -> None:
    """It was another process's, or the bound is less than it was."""
    path = tmp_path / "turns.jsonl"
    path.write_bytes(b"old\n" * 9)
    assert append(RecordFile(path, 40), b"1") == [True]
    assert path.read_bytes() == b"1\n"
    assert (tmp_path / "turns.jsonl.1").stat().st_size == 36


def test_one_that_cannot_make_way_does_not_grow(tmp_path: Path) -> None:
    """Nothing is written beyond the bound, however often that is tried, until it can."""
    path, older = tmp_path / "turns.jsonl", tmp_path / "turns.jsonl.1"
    older.mkdir()
    file = RecordFile(path, 4)
    append(file, b"1")
    for _ in range(4):
        with pytest.raises(IsADirectoryError):
            append(file, b"2")
    assert path.read_bytes() == b"1\n"
    older.rmdir()
    assert append(file, b"3") == [True]
    assert (older.read_bytes(), path.read_bytes()) == (b"1\n", b"3\n")


def test_after_an_error_of_the_disk_it_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened on a server that is back since is of no use any more."""
    path = tmp_path / "turns.jsonl"
    file = RecordFile(path, 1000)
    append(file, b"1")
    stale = file._file
    fstat = os.fstat

    def stale_fstat(fd: int) -> os.stat_result:
        if fd == stale:
            raise OSError(errno.ESTALE, "Stale file handle")
        return fstat(fd)

    keeper = os.open(tmp_path, os.O_RDONLY)  # so that the number is not given again
    monkeypatch.setattr(os, "fstat", stale_fstat)
    with pytest.raises(OSError, match="Stale"):
        file.prepare()
    monkeypatch.undo()
    os.close(keeper)
    assert append(file, b"2") == [True]


MAX_BYTES = 40
LINE_BYTES = 10


class Directory:
    """What may happen to the file and beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.older = path.with_name(f"{path.name}.1")
        self.file = RecordFile(path, MAX_BYTES)
        self.written = 0

    def write(self) -> None:
        """Write a line if that can be done; it is there then, and whole."""
        line = b"%09d" % self.written
        try:
            self.file.prepare()
            self.file.append(line)
        except OSError:
            return
        self.written += 1
        assert self.path.read_bytes().endswith(b"\n" + line + b"\n") or (
            self.path.read_bytes() == line + b"\n"
        )

    def move(self) -> None:
        """Take the file away."""
        if self.path.exists():
            self.path.rename(self.path.with_name("taken"))

    def cut(self) -> None:
        """Leave the beginning of the file."""
        if self.path.exists():
            os.truncate(self.path, min(5, self.path.stat().st_size))

    def block(self) -> None:
        """Let nothing become the older file, or let it again."""
        if self.older.is_dir():
            self.older.rmdir()
        else:
            self.older.unlink(missing_ok=True)
            self.older.mkdir()

    def restart(self) -> None:
        """Let another process go on."""
        self.file.close()
        self.file = RecordFile(self.path, MAX_BYTES)


@given(st.lists(st.sampled_from(("write", "move", "cut", "block", "restart")), max_size=40))
def test_whatever_happens_it_is_bounded_and_goes_on(happens: list[str]) -> None:
    """Every line that is said to be written is whole, and one more can be in the end."""
    with TemporaryDirectory() as home:
        directory = Directory(Path(home) / "turns.jsonl")
        for one in happens:
            getattr(directory, one)()
            files = [one for one in (directory.path, directory.older) if one.is_file()]
            assert sum(one.stat().st_size for one in files) <= MAX_BYTES + 2 * LINE_BYTES
        if directory.older.is_dir():
            directory.block()
        before = directory.written
        directory.write()
        assert directory.written == before + 1
        directory.file.close()

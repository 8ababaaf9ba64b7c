"""Files of KV are whole and the right ones, or missing; and they stay within their bound."""

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app import kv_file, kv_space
from serve_app.kv_directory import KvDirectory, NoRoomError
from serve_app.kv_file import HEADER, DamagedFileError
from serve_app.kv_shard import TEMPORARY_AGE_S, ShardFile, shard_files
from serve_app.kv_space import SWEEP_RATIO, SWEEPER, SWEPT_RATIO
from serve_app.kv_usage import SHARDS, USAGE, KvUsage, total_bytes

pytestmark = pytest.mark.slow

PAYLOAD_BYTES = 1000
FILE_BYTES = HEADER.size + PAYLOAD_BYTES
MIB = 1 << 20


def block(number: int) -> tuple[bytes, bytes]:
    """Return a key and its KV."""
    return number.to_bytes(32, "little") + bytes(4), number.to_bytes(4, "big") * 250


def directory(root: Path, namespace: str = "model\nrest", limit_bytes: int = MIB) -> KvDirectory:
    """Return a directory that is open."""
    opened = KvDirectory(root, namespace, PAYLOAD_BYTES, limit_bytes)
    opened.open()
    return opened


def files(root: Path) -> list[Path]:
    """List everything that holds KV, temporary files included."""
    return [path for path in root.rglob("*") if path.is_file() and path.parent != root]


def bytes_in(root: Path) -> int:
    """Return the bytes of all those."""
    return sum(path.stat().st_size for path in files(root))


def counted(root: Path) -> int:
    """Return the bytes that are counted as in use."""
    total = total_bytes(KvUsage(root).read())
    assert total is not None
    return total


@contextmanager
def small_files_only(limit_bytes: int) -> Iterator[None]:
    """Make writing beyond so many bytes of a file fail, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_stored_is_loaded_by_any_engine(tmp_path: Path) -> None:
    """Another reader of the same namespace gets the bytes back; other blocks are missing."""
    key, payload = block(1)
    directory(tmp_path).store(key, payload, time.time_ns())
    other = directory(tmp_path)
    assert other.has([key, block(2)[0]]) == [True, False]
    assert other.load(key, time.time_ns()) == payload
    with pytest.raises(FileNotFoundError):
        other.load(block(2)[0], time.time_ns())


def test_namespaces_do_not_see_each_other(tmp_path: Path) -> None:
    """A block of another model, by whatever name, is missing; put in its place it's damage."""
    key, payload = block(1)
    theirs = directory(tmp_path, "model\nother weights")
    theirs.store(key, payload, time.time_ns())
    ours = directory(tmp_path)
    assert ours.has([key]) == [False]
    ours.store(key, bytes(PAYLOAD_BYTES), time.time_ns())
    (their_file,) = theirs.path.rglob("*.kv")
    (our_file,) = ours.path.rglob("*.kv")
    our_file.write_bytes(their_file.read_bytes())
    with pytest.raises(DamagedFileError):
        ours.load(key, time.time_ns())


def test_another_blocks_file_is_not_taken_for_a_block(tmp_path: Path) -> None:
    """A file under a wrong name is damage."""
    kv = directory(tmp_path)
    kv.store(*block(1), time.time_ns())
    (first,) = files(tmp_path)
    kv.store(*block(2), time.time_ns())
    first.write_bytes(next(path for path in files(tmp_path) if path != first).read_bytes())
    with pytest.raises(DamagedFileError):
        kv.load(block(1)[0], time.time_ns())


@settings(deadline=None)
@given(st.data())
def test_any_damage_is_a_miss(data: st.DataObject) -> None:
    """Whatever happens to a file's bytes, what is loaded is what was stored, or nothing is."""
    key, payload = block(1)
    with TemporaryDirectory() as name:
        kv = directory(Path(name))
        kv.store(key, payload, time.time_ns())
        (path,) = files(Path(name))
        whole = path.read_bytes()
        position = data.draw(st.integers(0, len(whole)))
        damaged = data.draw(
            st.one_of(
                st.just(whole[:position]),
                st.binary(min_size=1).map(lambda tail: whole + tail),
                st.binary(min_size=1).map(
                    lambda new: whole[:position] + new + whole[position + len(new) :]
                ),
                st.binary(max_size=2 * len(whole)),
            )
        )
        path.write_bytes(damaged)
        try:
            assert kv.load(key, time.time_ns()) == payload
            assert damaged == whole
        except DamagedFileError:
            assert damaged != whole
            assert kv.has([key]) == [False]
            # What was cut off stays counted until that shard is swept.
            assert counted(Path(name)) == max(0, FILE_BYTES - len(damaged))


def test_what_is_no_file_is_damage_and_waits_for_nobody(tmp_path: Path) -> None:
    """A pipe or a link in a block's place is not read."""
    key, payload = block(1)
    kv = directory(tmp_path)
    kv.store(key, payload, time.time_ns())
    (path,) = files(tmp_path)
    path.rename(tmp_path / "elsewhere")
    os.mkfifo(path)
    with pytest.raises(DamagedFileError):
        kv.load(key, time.time_ns())
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        kv.load(key, time.time_ns())


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    """Files have mode 0600 and directories 0700."""
    root = tmp_path / "new" / "kv"
    directory(root).store(*block(1), time.time_ns())
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """A full disk is an OSError, no file, and no bytes counted; with room again it goes on."""
    kv = directory(tmp_path)
    kv.store(*block(1), time.time_ns())
    with small_files_only(500), pytest.raises(OSError) as raised:  # noqa: PT011
        kv.store(*block(2), time.time_ns())
    assert raised.value.errno == errno.EFBIG
    assert len(files(tmp_path)) == 1
    assert counted(tmp_path) == FILE_BYTES
    kv.store(*block(2), time.time_ns())
    assert kv.load(block(2)[0], time.time_ns()) == block(2)[1]


def test_a_vanished_directory_is_not_made_again(tmp_path: Path) -> None:
    """Without its root nothing is stored or loaded; when it's back, what is missing is made."""
    root = tmp_path / "kv"
    kv = directory(root)
    kv.store(*block(1), time.time_ns())
    root.rename(tmp_path / "away")
    for call in (
        lambda: kv.store(*block(2), time.time_ns()),
        lambda: kv.load(block(1)[0], time.time_ns()),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert kv.has([block(1)[0]]) == [False]
    assert not root.exists()
    root.mkdir()
    kv.store(*block(2), time.time_ns())
    assert kv.load(block(2)[0], time.time_ns()) == block(2)[1]


def test_the_disk_below_a_mount_that_went_away_is_not_filled(tmp_path: Path) -> None:
    """On another file system nothing is stored, found, loaded or removed; back on it all is."""
    kv = directory(tmp_path)
    key, payload = block(1)
    kv.store(key, payload, time.time_ns())
    before = files(tmp_path)
    device = kv._device
    assert device == tmp_path.stat().st_dev
    kv._device = device + 1
    for call in (
        lambda: kv.store(*block(2), time.time_ns()),
        lambda: kv.load(key, time.time_ns()),
    ):
        with pytest.raises(OSError, match="another file system"):
            call()
    assert kv.has([key, block(2)[0]]) == [False, False]
    assert files(tmp_path) == before
    kv._device = device
    assert kv.load(key, time.time_ns()) == payload


def test_the_bound_holds_and_the_oldest_go(tmp_path: Path) -> None:
    """However much is written, at most the limit is there, and it's what was used last."""
    limit_bytes = 100 * FILE_BYTES
    kv = directory(tmp_path, limit_bytes=limit_bytes)
    removed: list[bytes] = []
    for number in range(350):
        kv.store(*block(number), number)
        assert kv.has([block(0)[0]]) == [True]
        kv.load(block(0)[0], time.time_ns())  # which makes it the one used last
        assert bytes_in(tmp_path) <= limit_bytes
        while not kv.swept.empty():
            swept = kv.swept.get()
            assert swept.num_files == len(swept.keys)
            removed += swept.keys
    left = [number for number in range(1, 350) if kv.has([block(number)[0]]) == [True]]
    assert left == list(range(350 - len(left), 350))
    assert len(left) >= SWEPT_RATIO * 100 - 2
    assert sorted(removed) == sorted(block(number)[0] for number in range(1, 350 - len(left)))
    assert counted(tmp_path) == bytes_in(tmp_path)


def test_a_smaller_limit_is_reached_by_the_next_store(tmp_path: Path) -> None:
    """A new limit holds for what was there before, and for all namespaces together."""
    for number in range(100):
        directory(tmp_path, f"model\n{number % 3}").store(*block(number), number)
    directory(tmp_path, limit_bytes=20 * FILE_BYTES).store(*block(100), 100)
    assert bytes_in(tmp_path) <= SWEEP_RATIO * 20 * FILE_BYTES


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    """Only files of KV are ever counted or removed."""
    (tmp_path / "thesis.tex").write_bytes(bytes(10 * FILE_BYTES))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "00").mkdir()
    (tmp_path / "photos" / "00" / "00112233.kv").write_bytes(bytes(10 * FILE_BYTES))
    kv = directory(tmp_path, limit_bytes=5 * FILE_BYTES)
    for number in range(20):
        kv.store(*block(number), number)
    assert (tmp_path / "thesis.tex").exists()
    assert (tmp_path / "photos" / "00" / "00112233.kv").exists()


def test_a_name_that_is_no_key_is_left_alone(tmp_path: Path) -> None:
    """A sweep does not end at an odd number of digits."""
    kv = directory(tmp_path, limit_bytes=10 * FILE_BYTES)
    kv.store(*block(0), 0)
    odd = files(tmp_path)[0].with_name("123456789.kv")
    odd.write_bytes(b"")
    os.utime(odd, (0, 0))
    for number in range(1, 30):
        kv.store(*block(number), number)
    assert not kv.swept.empty()
    assert odd.exists()


def test_a_file_that_may_not_be_removed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep removes the others, and goes on counting it."""
    kv = directory(tmp_path, limit_bytes=10 * FILE_BYTES)
    kv.store(*block(0), 0)
    (fixed,) = files(tmp_path)
    unlink = os.unlink

    def refuse(path: str) -> None:
        if path == str(fixed):
            raise PermissionError(errno.EPERM, "not permitted", path)
        unlink(path)

    monkeypatch.setattr(os, "unlink", refuse)
    for number in range(1, 30):
        kv.store(*block(number), number)
    assert fixed.exists()
    assert bytes_in(tmp_path) <= 10 * FILE_BYTES
    assert counted(tmp_path) == bytes_in(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_what_cannot_be_read_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Such as what another user left: it is not counted, and room is made among the rest."""
    unreadable = tmp_path / "other-0123456789abcdef.kv"
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).parent == unreadable:
            raise OSError(number, os.strerror(number), str(path))
        return scandir(path)

    unreadable.mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    kv = directory(tmp_path, limit_bytes=10 * FILE_BYTES)
    for one in range(30):
        kv.store(*block(one), one)
    assert 5 * FILE_BYTES < bytes_in(tmp_path) <= 10 * FILE_BYTES


def test_files_that_were_cut_off_are_counted_out_as_they_were(tmp_path: Path) -> None:
    """Else those that are whole would be, and more be kept than may."""
    kv = directory(tmp_path)
    for one in range(20):
        kv.store(*block(one), one)
    for path in files(tmp_path)[:10]:
        os.truncate(path, 1)
    (tmp_path / USAGE).unlink()
    kv.store(*block(20), 20)
    for one in range(20):
        with suppress(DamagedFileError):
            kv.load(block(one)[0], one)
    assert len(files(tmp_path)) == 11
    assert counted(tmp_path) == bytes_in(tmp_path)


def test_one_file_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    """There is no room for it, and nothing is left behind."""
    with pytest.raises(NoRoomError):
        directory(tmp_path, limit_bytes=FILE_BYTES - 1).store(*block(1), 1)
    assert files(tmp_path) == []


def test_what_dead_writers_left_is_swept(tmp_path: Path) -> None:
    """A temporary file is removed once it's old, and not before."""
    kv = directory(tmp_path, limit_bytes=10 * FILE_BYTES)
    kv.store(*block(0), time.time_ns())
    (path,) = files(tmp_path)
    old, new = path.with_name(".a.kv.1.tmp"), path.with_name(".a.kv.2.tmp")
    for temporary in (old, new):
        temporary.write_bytes(bytes(500))
    then_s = time.time() - TEMPORARY_AGE_S - 1
    os.utime(old, (then_s, then_s))
    for number in range(1, 12):
        kv.store(*block(number), time.time_ns())
    assert not old.exists()
    assert new.exists()


def test_a_lost_count_is_counted_anew(tmp_path: Path) -> None:
    """The number of bytes is taken from the files when it's missing or unreadable."""
    kv = directory(tmp_path)
    for number in range(5):
        kv.store(*block(number), number)
    for content in (b"", b"garbage"):
        (tmp_path / USAGE).write_bytes(content)
        number = len(files(tmp_path))
        kv.store(*block(number), number)
        assert counted(tmp_path) == bytes_in(tmp_path)


def write_count(root: Path, shards: slice, number: int) -> None:
    """Make the count of some shards wrong."""
    numbers = np.fromfile(root / USAGE, "<i8")
    numbers[shards] = number
    numbers.tofile(root / USAGE)


@pytest.mark.parametrize("shards", [slice(250, 251), slice(0, 256)], ids=["one", "all"])
@pytest.mark.parametrize("number", [1 << 20, 1 << 40, 1 << 62, -(1 << 62)])
def test_a_wrong_count_removes_nothing(tmp_path: Path, shards: slice, number: int) -> None:
    """However much is counted that is not there, the files that fit stay, and the bound holds."""
    kv = directory(tmp_path)
    for one in range(50):
        kv.store(*block(one), one)
    write_count(tmp_path, shards, number)
    kv.store(*block(50), 50)
    assert len(files(tmp_path)) == 51
    assert counted(tmp_path) == 51 * FILE_BYTES


def test_a_wrong_count_of_many_files_removes_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a sweep looks at a part of them only."""
    monkeypatch.setattr(kv_space, "SAMPLE_FILES", 200)
    kv = directory(tmp_path, limit_bytes=2000 * FILE_BYTES)
    for number in range(1500):
        kv.store(*block(number), number)
    write_count(tmp_path, slice(250, 251), 1 << 40)
    kv.store(*block(1500), 1500)
    assert counted(tmp_path) == bytes_in(tmp_path) == 1501 * FILE_BYTES


def test_a_block_is_kept_where_no_room_can_be_made(tmp_path: Path) -> None:
    """What fits is kept without complaint; what doesn't is not."""
    (tmp_path / SWEEPER).mkdir()
    (tmp_path / USAGE).write_bytes(bytes(8 * SHARDS))
    kv = directory(tmp_path, limit_bytes=10 * FILE_BYTES)
    for number in range(10):
        kv.store(*block(number), number)
    with pytest.raises(IsADirectoryError):
        kv.store(*block(10), 10)
    assert len(files(tmp_path)) == 10


@settings(deadline=None, max_examples=30)
@given(noted=st.sets(st.integers(0, 19), max_size=10), marked=st.booleans())
def test_what_was_noted_as_used_is_not_removed(noted: set[int], marked: bool) -> None:
    """Whether it's marked by then or not; the others go, and no note stays."""
    with TemporaryDirectory() as name:
        kv = directory(Path(name), limit_bytes=20 * FILE_BYTES)
        directory(Path(name), "model\nother").store(*block(999), 0)
        for number in range(18):
            kv.store(*block(number), number)
        used = {block(number)[0]: 10**15 for number in noted}
        kv.uses.note(used)
        if marked:
            kv.uses.mark(used)
        for number in range(100, 110):
            kv.store(*block(number), number)
        gone = [number for number in range(18) if kv.has([block(number)[0]]) == [False]]
        assert gone
        assert not noted & set(gone)
        assert gone == [number for number in range(18) if number not in noted][: len(gone)]
        kv.uses.mark(used)
        assert not kv.uses._noted_at_ns


def test_of_many_files_the_oldest_go_nearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweeps that compare few of them keep to the limit, and to what was used last."""
    monkeypatch.setattr(kv_space, "SAMPLE_FILES", 200)
    limit_bytes = 2000 * FILE_BYTES
    kv = directory(tmp_path, limit_bytes=limit_bytes)
    for number in range(5000):
        kv.store(*block(number), number)
        assert counted(tmp_path) <= limit_bytes
    left = [number for number in range(5000) if kv.has([block(number)[0]]) == [True]]
    assert counted(tmp_path) == bytes_in(tmp_path) == len(left) * FILE_BYTES
    assert len(left) >= (SWEPT_RATIO - 0.02) * 2000
    assert left[-1500:] == list(range(3500, 5000))


def test_a_sweep_reads_a_part_of_a_large_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that makes room reads a few shards, and the next ones read the others."""
    monkeypatch.setattr(kv_space, "SAMPLE_FILES", 100)
    kv = directory(tmp_path, limit_bytes=2000 * FILE_BYTES)
    for number in range(1900):
        kv.store(*block(number), number)
    read: list[int] = []

    def note(root: Path, shard: int) -> list[ShardFile]:
        read.append(shard)
        return shard_files(root, shard)

    monkeypatch.setattr(kv_space, "shard_files", note)
    kv.store(*block(1900), 1900)
    assert 0 < len(read) <= 16
    for number in range(1901, 2200):
        kv.store(*block(number), number)
    assert len(set(read)) == SHARDS


def test_what_is_being_written_stays_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep between the reservation of a block's bytes and the end of its file misses nothing."""
    kv = directory(tmp_path, limit_bytes=10 * FILE_BYTES)
    for number in range(8):
        kv.store(*block(number), number)
    write, is_outer = kv_file.write, True

    def write_slowly(*args: Any) -> None:
        nonlocal is_outer
        if is_outer:
            is_outer = False
            for number in range(9, 12):
                kv.store(*block(number), number)
            assert not kv.swept.empty()
            assert counted(tmp_path) == bytes_in(tmp_path)
        write(*args)

    monkeypatch.setattr(kv_file, "write", write_slowly)
    kv.store(*block(8), 8)
    assert counted(tmp_path) == bytes_in(tmp_path)
    assert bytes_in(tmp_path) <= 10 * FILE_BYTES


def test_a_store_takes_one_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As each is a way to the server and back where the directory is on a network."""
    kv = directory(tmp_path)
    kv.store(*block(0), 0)
    taken: list[int] = []
    flock = fcntl.flock

    def note(file: int, how: int) -> None:
        taken.append(how)
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", note)
    kv.store(*block(1), 1)
    assert len(taken) == 1


WRITER = """
import sys, time
from pathlib import Path
from tests.test_kv_directory import block, directory, FILE_BYTES, NoRoomError
kv = directory(Path(sys.argv[1]), limit_bytes=100 * FILE_BYTES)
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 400):
    try:
        kv.store(*block(number), time.time_ns())
    except NoRoomError:
        time.sleep(0.001)
"""


def test_several_writers_share_one_bound(tmp_path: Path) -> None:
    """Processes that write overlapping blocks stay within the limit, and one may be killed."""
    limit_bytes = 100 * FILE_BYTES
    kv = directory(tmp_path, limit_bytes=limit_bytes)
    starts = (0, 200, 400)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, str(start)]) for start in starts
    ]
    largest = 0
    for step in count():
        running = [writer for writer in writers if writer.poll() is None]
        if not running:
            break
        with suppress(FileNotFoundError):
            largest = max(largest, bytes_in(tmp_path))
        if step == 100 and len(running) == 3:
            running[0].kill()
        time.sleep(0.005)
    assert sorted(writer.returncode for writer in writers)[1:] == [0, 0]
    assert largest <= 1.05 * limit_bytes
    present = [number for number in range(800) if kv.has([block(number)[0]]) == [True]]
    assert len(present) > 50
    for number in present:
        assert kv.load(block(number)[0], time.time_ns()) == block(number)[1]

"""The files of KV in one shard of a directory: their names, and which were not used for long."""

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from serve_app.kv_file import TEMPORARY, final_name

logger = logging.getLogger(f"vllm.{__name__}")  # an engine's process shows only what is vLLM's

FILE_NAME = re.compile(r"([0-9a-f]{2}){4,64}\.kv")
NAMESPACE_SUFFIX = ".kv"

TEMPORARY_AGE_S = 3600
"""Age at which a file that is still being written is taken for a dead writer's."""


class ShardFile(NamedTuple):
    """A file of KV, or one that is being written; of several the one used longest ago is least."""

    used_at_ns: int
    num_bytes: int
    path: str
    shard: int


def block_file(namespace: Path, key: bytes) -> str:
    """Return the path of a block's file."""
    name = key.hex()
    return f"{namespace}/{name[:2]}/{name}.kv"


def block_of(path: str) -> bytes | None:
    """Return the key of the block whose file that is, None if it's being written."""
    name = path.rpartition("/")[2]
    return bytes.fromhex(name.removesuffix(".kv")) if FILE_NAME.fullmatch(name) else None


def shard_files(root: Path, shard: int) -> list[ShardFile]:
    """Return the files of all namespaces in a shard, without those of dead writers, who go.

    What cannot be read below the root counts for nothing.
    """
    namespaces = [one for one in _entries(root) if one.name.endswith(NAMESPACE_SUFFIX)]
    return [file for one in namespaces for file in _files(f"{one.path}/{shard:02x}", shard)]


def remove_oldest(files: Sequence[ShardFile], kept_ratio: float) -> list[ShardFile]:
    """Remove what was used longest ago until that share of all bytes is left; return it."""
    num_bytes = sum(file.num_bytes for file in files)
    kept_bytes = kept_ratio * num_bytes
    removed = []
    for file in sorted(files):
        if num_bytes <= kept_bytes:
            break
        if not file.path.endswith(TEMPORARY):
            with suppress(OSError):
                os.unlink(file.path)  # noqa: PTH108  # without a `Path` for each of many files
                num_bytes -= file.num_bytes
                removed.append(file)
    return removed


def _files(directory: str, shard: int) -> Iterator[ShardFile]:
    dead_ns = time.time_ns() - TEMPORARY_AGE_S * 10**9
    try:
        entries = _entries(directory)
    except OSError as error:  # another user's, or a bad spot of the disk: the rest goes on
        _complain(directory, error.strerror)
        return
    for entry in entries:
        is_temporary = entry.name.endswith(TEMPORARY)
        if not is_temporary and not FILE_NAME.fullmatch(entry.name):
            continue
        with suppress(OSError):
            path = entry.path
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                if not is_temporary:
                    raise
                path = f"{directory}/{final_name(entry.name)}"  # it may be in place by now
                status = os.lstat(path)
            if path.endswith(TEMPORARY) and status.st_mtime_ns < dead_ns:
                os.unlink(path)  # noqa: PTH108
            else:
                yield ShardFile(status.st_mtime_ns, status.st_size, path, shard)


@cache
def _complain(directory: str, reason: str | None) -> None:
    logger.warning("shared KV tier: files in %s are not counted: %s", directory, reason)


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        return list(entries)
    return []

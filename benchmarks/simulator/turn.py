"""One request of a live session, and where its prompt's block hashes come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from benchmarks.trace_session import TraceRequest, TraceSession
from policies.block_hash import chain, root_hash
from policies.types import BlockHash, Request, RequestId, SessionId

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Turn:
    """A request as a router sees it, with what only the engine needs.

    `answer` are the blocks that the answer completes, where it is known what they will hold: they
    can be reused by a prompt that has them. `contents` are the prompt's and these blocks' own
    hashes, as `policies.block_hash` chains them from `root` on. `thick` says that its session sends
    bursts.
    """

    request: Request
    root: BlockHash
    contents: NDArray[np.uint64]
    output_tokens: int
    answer: Sequence[BlockHash] = ()
    thick: bool = False

    @property
    def reusable(self) -> Sequence[BlockHash]:
        """The blocks that can be reused in GPU memory.

        vLLM always computes a prompt's last token, though it may read that token's block from CPU
        memory, and never an answer's last one.
        """
        request = self.request
        return request.hashes[: (request.prompt_tokens - 1) // request.block_size]


class LiveSession:
    """A recorded session that is being replayed, for the `replay`-th time.

    Replays of one session share no blocks, unless the trace says that its sessions do. `merged`
    recorded blocks are one block here, so that a simulation has fewer to look after.
    """

    def __init__(
        self, trace: TraceSession, replay: int, *, first_step: int = 0, merged: int = 1
    ) -> None:
        self.session = SessionId(f"{trace.session}/{replay}")
        self.in_flight = 0
        self._trace = trace
        self._next_step = first_step
        self._requests = 0
        self._seed = _seed(f"{trace.scope}/{replay}")
        self._common_seed = _seed(trace.scope)
        self._shared_seed = _seed(f"{trace.tool_tokens}+{trace.system_tokens}")
        self._first_ids = _ids(trace.steps[0][0])[: trace.shared_blocks]
        self._merged = merged
        self._block_size = trace.block_size * merged
        self._root = root_hash("model", self._block_size)
        self._last_contents = np.empty(0, np.uint64)
        self._last_hashes: list[BlockHash] = []

    def change_system_prompt(self, version: str) -> None:
        """Let prompts from now on begin with something else, and so share nothing with others."""
        self._root = root_hash(version, self._block_size)
        self._last_contents = self._last_contents[:0]

    @property
    def ended(self) -> bool:
        """Whether it has no further step."""
        return self._next_step == len(self._trace.steps)

    def next_step(self, now_s: float) -> list[tuple[float, Turn]]:
        """Return the next step's turns and when each is sent."""
        step = self._trace.steps[self._next_step]
        self._next_step += 1
        self.in_flight = len(step)
        return [(now_s + one.think_s, self._turn(one, now_s + one.think_s)) for one in step]

    def end_turn(self, now_s: float) -> list[tuple[float, Turn]] | None:
        """Note that a turn ended; return what that lets go, or None where it was the last one."""
        self.in_flight -= 1
        if self.in_flight:
            return []
        return None if self.ended else self.next_step(now_s)

    def _turn(self, recorded: TraceRequest, at_s: float) -> Turn:
        ids = _ids(recorded)
        seeds = np.where(ids < self._trace.common_below, self._common_seed, self._seed)
        contents = _mix(ids.astype(np.uint64) + seeds)
        shared = min(len(ids), len(self._first_ids))
        same = ids[:shared] == self._first_ids[:shared]
        positions = np.arange(shared, dtype=np.uint64) + self._shared_seed
        contents[:shared][same] = _mix(positions)[same]
        if self._merged > 1:
            whole = len(ids) // self._merged * self._merged
            contents = _mix(contents[:whole].reshape(-1, self._merged) @ _weights(self._merged))
        hashes = self._hash(contents)
        self._requests += 1
        request = Request(
            request=RequestId(f"{self.session}/{self._requests}"),
            session=self.session,
            hashes=hashes,
            prompt_tokens=recorded.prompt_tokens,
            block_size=self._block_size,
            arrived_at_s=at_s,
        )
        thick = self._trace.bursts is not None
        return Turn(request, self._root, contents, max(1, recorded.output_tokens), thick=thick)

    def _hash(self, contents: NDArray[np.uint64]) -> list[BlockHash]:
        """Hash a prompt from where it parts from the last one."""
        both = min(len(contents), len(self._last_contents))
        differ = np.flatnonzero(contents[:both] != self._last_contents[:both])
        common = int(differ[0]) if len(differ) else both
        parent = self._last_hashes[common - 1] if common else self._root
        hashes = self._last_hashes[:common] + chain(parent, contents[common:].tolist())
        self._last_contents, self._last_hashes = contents, hashes
        return hashes


def _ids(recorded: TraceRequest) -> NDArray[np.int64]:
    runs = [np.arange(run.start, run.stop, dtype=np.int64) for run in recorded.hash_ids]
    return np.concatenate(runs) if runs else np.empty(0, np.int64)


def _seed(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little"))


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = words * _ODD
    words = (words ^ (words >> _HALF)) * _MIX
    return words ^ (words >> _HALF)


def _weights(count: int) -> NDArray[np.uint64]:
    return _mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)

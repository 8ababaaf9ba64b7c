"""Which blocks of a prompt the shared tier has, looked up on a thread."""

from collections.abc import Iterable
from itertools import groupby, pairwise

from vllm.v1.kv_offload.base import OffloadKey, ReqContext, get_offload_group_idx
from vllm.v1.kv_offload.tiering.async_lookup import AsyncLookupManager

from serve_app.kv_directory import KvDirectory


class TierLookups(AsyncLookupManager):
    """vLLM's lookups. Of a prompt that is not there one file is looked for, not all of them.

    vLLM asks for a group's blocks from the prompt's beginning where it can use no block without
    those before it (full attention), and from its end where a window will do. It asks for the
    former groups first, and uses no window beyond where they end.
    """

    def __init__(self, directory: KvDirectory, tier_type: str) -> None:
        """Look in `directory`; `tier_type` is vLLM's name of the tier."""
        super().__init__(tier_type)
        self._directory = directory
        self._gave_up = False

    @property
    def is_stuck(self) -> bool:
        """Whether the thread has not come back for what waits since a lookup was given up."""
        self._gave_up = self._gave_up and not self._lookup_queue.empty()
        return self._gave_up

    def give_up(self) -> None:
        """Note that nobody waits any longer for what was asked."""
        self._gave_up = True

    def batch_lookup(self, keys: list[OffloadKey], req_context: ReqContext) -> Iterable[bool]:
        """Tell which blocks of a prompt are there and of use, in the order of `keys`."""
        found: set[OffloadKey] = set()
        end: float = float("inf")
        for _, group in groupby(keys, get_offload_group_idx):
            asked = list(group)
            positions = [req_context.get_offload_key_position(key) or 0 for key in asked]
            if len(asked) > 1 and all(one < other for one, other in pairwise(positions)):
                there = self._directory.num_leading(asked)
                found.update(asked[:there])
                if there < len(asked):
                    end = min(end, positions[there])
            else:
                within = [key for key, at in zip(asked, positions, strict=True) if at < end]
                are_there = self._directory.has(within)
                found.update(
                    key for key, is_there in zip(within, are_there, strict=True) if is_there
                )
        return [key in found for key in keys]

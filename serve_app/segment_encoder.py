"""Text -> token ids, where each part of a text is encoded once, whoever sends it again.

A tokenizer splits a text at its special tokens before it does anything else: what lies between two
of them is normalised, split into words and encoded on its own. So a text can be cut in front of
each special token, and the ids of the segments, joined, are the ids of the text. A turn repeats
nearly all segments of earlier ones, whichever session or lineage they came from; only the others
are encoded.
"""

import re
from collections import OrderedDict
from itertools import pairwise
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Ids = NDArray[np.uint32]
"""Token ids, one dimension; not written to once made."""

ENTRY_BYTES = 400
"""About what a segment takes beside its text and its ids."""


def cuts(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Return what finds the special tokens in a text, exactly as the tokenizer does.

    None if a cut before them could change the ids: where a token takes the white space beside it
    or looks at the word beside it, where special tokens are encoded as text, and where encoding is
    random. Other added tokens, which are looked for in normalised text only, are no cuts.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if any(token.lstrip or token.rstrip or token.single_word for token in added):
        return None
    if tokenizer.encode_special_tokens or getattr(tokenizer.model, "dropout", None):
        return None
    contents = {token.content for token in added if not token.normalized} - {""}
    if not contents:
        return None
    # Like the tokenizer: the leftmost match, and of several there the longest.
    return re.compile("|".join(map(re.escape, sorted(contents, key=len, reverse=True))))


class SegmentEncoder:
    """A tokenizer that remembers the segments it has encoded, up to `max_bytes`.

    Any thread may call it.
    """

    def __init__(self, tokenizer: Tokenizer, cut: re.Pattern[str], max_bytes: int) -> None:
        """Take a tokenizer that nobody changes any more, without truncation and padding."""
        self._tokenizer = tokenizer
        self._cut = cut
        self._max_bytes = max_bytes
        self._bytes = 0
        self._memory: OrderedDict[str, Ids] = OrderedDict()
        self._lock = Lock()

    def encode(self, text: str) -> tuple[Ids, ...]:
        """Return the ids of each of the text's segments.

        A segment that was there before is the same array as before, as long as it is remembered.
        """
        starts = (match.start() for match in self._cut.finditer(text))
        segments = [text[a:b] for a, b in pairwise([0, *starts, len(text)]) if a < b]
        known = self._recall(segments)
        unknown = [segment for segment in dict.fromkeys(segments) if segment not in known]
        encodings = self._tokenizer.encode_batch_fast(unknown, add_special_tokens=False)
        fresh = {
            segment: np.array(encoding.ids, np.uint32)
            for segment, encoding in zip(unknown, encodings, strict=True)
        }
        self._remember(fresh)
        known |= fresh
        return tuple(known[segment] for segment in segments)

    def _recall(self, segments: list[str]) -> dict[str, Ids]:
        with self._lock:
            known = {one: self._memory[one] for one in segments if one in self._memory}
            for segment in known:
                self._memory.move_to_end(segment)
            return known

    def _remember(self, fresh: dict[str, Ids]) -> None:
        with self._lock:
            for segment, ids in fresh.items():
                if segment not in self._memory:
                    self._memory[segment] = ids
                    self._bytes += _size_bytes(segment, ids)
            while self._bytes > self._max_bytes:
                self._bytes -= _size_bytes(*self._memory.popitem(last=False))


def _size_bytes(segment: str, ids: Ids) -> int:
    return segment.__sizeof__() + ids.nbytes + ENTRY_BYTES

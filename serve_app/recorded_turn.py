"""One finished turn as it is recorded: a line of JSON."""

from base64 import b64decode, b64encode
from datetime import datetime

import msgspec
import numpy as np
from numpy.typing import NDArray

from serve_app.replica_report import Outcome

Hashes = NDArray[np.uint64]
NO_HASHES: Hashes = np.empty(0, np.uint64)

_BYTES = np.dtype("<u8")


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn; what is not known of it, or is 0, is left out of the line.

    `blocks` are the hashes of the prompt's full blocks of `block_size` tokens, each of which stands
    for all that precedes it too: 8 bytes each, little-endian, in Base64, as 64 bits are more than
    many readers of JSON can take. The first `same_blocks` are left out: those of the session's last
    line before this one.
    """

    arrived_at: datetime
    """At the router, in UTC."""
    session: str | None
    request: str
    """The id that the client sees."""
    outcome: Outcome
    prompt_tokens: int
    """An estimate where the prompt was not rendered and the engine did not take it."""
    output_tokens: int = 0
    cached_tokens: int = 0
    cached: dict[str, int] | None = None
    """Tokens of the prompt by the tier that had them ..."""
    missed: dict[str, int] | None = None
    """... and those that were prefilled, by the kind of miss."""
    waited_s: float | None = None
    """From the arrival to the decision by which it was sent."""
    ttft_s: float | None = None
    """From the arrival at the replica to the first token."""
    e2e_s: float | None = None
    """From the arrival at the replica to the end of the answer."""
    expected_ttft_s: float | None = None
    replica: str | None = None
    rule: str | None = None
    prefix_break: str | None = None
    not_rendered: str | None = None
    block_size: int
    same_blocks: int = 0
    blocks: str = ""
    path: str | None = None
    body: str | None = None
    """What the client sent, where that is recorded at all."""


def pack(hashes: Hashes) -> str:
    """Return hashes as a line has them."""
    return b64encode(hashes.astype(_BYTES, copy=False).tobytes()).decode()


def unpack(blocks: str) -> Hashes:
    """Return the hashes of a line. Raises ValueError where they are no whole ones."""
    return np.frombuffer(b64decode(blocks, validate=True), _BYTES).astype(np.uint64, copy=False)


def same_blocks(one: Hashes, other: Hashes) -> int:
    """Return how many blocks two prompts have in common from their beginning."""
    both = min(len(one), len(other))
    differ = one[:both] != other[:both]
    return int(differ.argmax()) if differ.any() else both


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(RecordedTurn).decode
"""Raises msgspec.MsgspecError where the line is not whole, or no recorded turn."""

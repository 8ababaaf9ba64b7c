"""Why a turn does not extend the one before: where they part, and what changed there."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from policies.turn import Message, Tool, Turn

FEW_LINES = 4
"""A system prompt that changed in more lines than this is another one."""


class Kind(StrEnum):
    """What changed."""

    VOLATILE_LINE = "volatile_line"
    SYSTEM_CHANGED = "system_changed"
    TOOLS_CHANGED = "tools_changed"
    TOOLS_REORDERED = "tools_reordered"
    HISTORY_REWRITTEN = "history_rewritten"
    REASONING_STRIPPED = "reasoning_stripped"
    COMPACTION = "compaction"
    OTHER_LINEAGE = "other_lineage"
    UNKNOWN = "unknown"  # all that is kept is the same: the chat template said it differently


@dataclass(frozen=True, slots=True)
class PrefixBreak:
    """A turn has only `token` leading tokens in common with the last, which had `lost_tokens` more.

    `message_index` and `role` are of this turn's first message that differs, or of the last turn's
    where this one has ended before; None where no message differs.
    """

    kind: Kind
    token: int
    message_index: int | None
    role: str | None
    lost_tokens: int


def prefix_break(last: Turn, this: Turn, common_tokens: int) -> PrefixBreak | None:
    """Tell why this turn's prompt does not begin with the last one's, or None where it does.

    `common_tokens` are the leading tokens that both prompts have. Where several things changed, a
    new conversation comes first, then tools, system prompt, and the first message that differs.
    """
    lost_tokens = last.prompt_tokens - common_tokens
    if lost_tokens <= 0:
        return None
    kind, index = _difference(last, this)
    role = None if index is None else (*this.messages[index:], *last.messages[index:])[0].role
    return PrefixBreak(kind, common_tokens, index, role, lost_tokens)


def _difference(last: Turn, this: Turn) -> tuple[Kind, int | None]:
    old, new = last.messages[last.system :], this.messages[this.system :]
    same = _common(old, new)
    index = this.system + same
    kept_later = not set(old[same:]).isdisjoint(new[same:])
    if old and new and same == 0 and not kept_later:
        return _new_conversation(last, this), index
    if last.tools != this.tools:
        return _tools_difference(last.tools, this.tools), None
    old_system, new_system = last.messages[: last.system], this.messages[: this.system]
    if old_system != new_system:
        return _system_difference(last, this), _common(old_system, new_system)
    if same == len(old):
        return _rendered_differently(last)
    if same < len(new) and new[same] == old[same]._replace(reasoning=None):
        return Kind.REASONING_STRIPPED, index
    compacted = kept_later and len(new) < len(old)
    return Kind.COMPACTION if compacted else Kind.HISTORY_REWRITTEN, index


def _new_conversation(last: Turn, this: Turn) -> Kind:
    """Tell a history that its client summed up from one that another agent begins.

    The former has the same tools and system prompt, and is shorter.
    """
    same_front = (last.tools, last.messages[: last.system]) == (
        this.tools,
        this.messages[: this.system],
    )
    shorter = len(this.messages) < len(last.messages)
    return Kind.COMPACTION if same_front and shorter else Kind.OTHER_LINEAGE


def _tools_difference(last: Sequence[Tool], this: Sequence[Tool]) -> Kind:
    same_set = Counter(tool.sorted for tool in last) == Counter(tool.sorted for tool in this)
    return Kind.TOOLS_REORDERED if same_set else Kind.TOOLS_CHANGED


def _system_difference(last: Turn, this: Turn) -> Kind:
    old, new = Counter(last.system_lines), Counter(this.system_lines)
    lines = max((old - new).total(), (new - old).total())
    return Kind.VOLATILE_LINE if 0 < lines <= FEW_LINES else Kind.SYSTEM_CHANGED


def _rendered_differently(last: Turn) -> tuple[Kind, int | None]:
    """Say why equal messages became other tokens.

    Chat templates keep the reasoning that follows the user's last words until there are new ones.
    """
    roles = [message.role for message in last.messages]
    after_user = len(roles) - roles[::-1].index("user") if "user" in roles else 0
    for index in range(after_user, len(roles)):
        if last.messages[index].reasoning is not None:
            return Kind.REASONING_STRIPPED, index
    return Kind.UNKNOWN, None


def _common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return how many leading messages are equal."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

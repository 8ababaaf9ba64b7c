"""What came of computing a prompt once more."""

from enum import StrEnum


class Verdict(StrEnum):
    """How the answer from cached KV compares with the computed one."""

    SAME = "same"
    DIFFERS = "differs"
    """The cached KV is wrong."""
    UNSTABLE = "unstable"
    """Two computations differ as much: the engine's own noise hides what was looked for."""
    UNCACHED = "uncached"
    """The prompt's KV was evicted before it could be read again."""

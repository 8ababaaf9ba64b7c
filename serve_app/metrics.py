"""Every metric that warmturn adds to Ray's."""

from ray.serve.metrics import Counter


def volatile_lines_removed() -> Counter:
    """Lines removed from system prompts, by the pattern that they matched."""
    return Counter(
        "warmturn_volatile_lines_removed",
        description="Lines removed from system prompts because they break the prefix cache.",
        tag_keys=("pattern",),
    )

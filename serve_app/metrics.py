"""Every metric that warmturn adds to Ray's."""

from ray.serve.metrics import Counter


def volatile_lines_removed() -> Counter:
    """Lines removed from system prompts, by the pattern that they matched."""
    return Counter(
        "warmturn_volatile_lines_removed",
        description="Lines removed from system prompts because they break the prefix cache.",
        tag_keys=("pattern",),
    )


def prompts_not_rendered() -> Counter:
    """Turns routed by session and load alone, by the reason why there are no token ids."""
    return Counter(
        "warmturn_prompts_not_rendered",
        description="Turns whose prompt could not be rendered before they were routed.",
        tag_keys=("reason",),
    )


def prefix_breaks() -> Counter:
    """Turns that do not extend their session's last one, by kind of break."""
    return Counter(
        "warmturn_prefix_breaks",
        description="Turns whose prompt does not begin with that of an earlier turn.",
        tag_keys=("kind",),
    )


def prefix_break_tokens() -> Counter:
    """Tokens after the break that the earlier turn's prompt had, by kind of break."""
    return Counter(
        "warmturn_prefix_break_tokens",
        description="Tokens of earlier prompts that prefix breaks made worthless.",
        tag_keys=("kind",),
    )


def router_fallbacks() -> Counter:
    """Turns placed without the router actor, as it did not answer in time."""
    return Counter(
        "warmturn_router_fallbacks",
        description="Turns placed by rendezvous hashing because the router actor was silent.",
    )

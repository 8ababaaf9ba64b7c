"""A suggestion as its reader gets it: tables, reasons, and what to paste into serve.yaml."""

from dataclasses import asdict
from typing import Any

from benchmarks.simulated_table import print_table
from benchmarks.suggest import Suggestion
from policies.autoscale_settings import AutoscaleSettings

CURVE = (
    ("replicas", lambda one: str(one.replicas)),
    ("KV tokens", lambda one: f"{one.tokens / 1e6:.1f}M"),
    ("hit", lambda one: f"{one.hit_ratio:.3f}"),
    ("uncached tokens/s", lambda one: f"{one.uncached_tokens_per_s:,.0f}"),
    ("replicas to prefill them", lambda one: f"{one.prefill_replicas:.1f}"),
)
DEMANDS = (
    ("demand", lambda one: one[0]),
    ("median", lambda one: f"{one[1][0]:.1f}"),
    ("p90", lambda one: f"{one[1][1]:.1f}"),
    ("most", lambda one: f"{one[1][2]:.1f}"),
)
DAYS = (
    ("target_hit_ratio", lambda one: f"{one.settings.target_hit_ratio:g}"),
    ("headroom_deviations", lambda one: f"{one.settings.headroom_deviations:g}"),
    ("replica hours", lambda one: f"{one.day.replica_hours:.1f}"),
    ("late answers", lambda one: str(one.day.slo_misses)),
    ("hit", lambda one: f"{one.day.hit_ratio:.3f}"),
)


def print_suggestion(found: Suggestion) -> None:
    """Print all of it."""
    print("What the memory of so many replicas would have had cached, at the busiest time:")
    print_table(found.curve, CURVE, least_width=80)
    print("\nReplicas that each demand called for, over the day:")
    print_table(list(found.demands.items()), DEMANDS, least_width=60)
    print("\nDays with these settings:")
    print_table(found.tried, DAYS, least_width=80)
    print()
    for name, reason in found.reasons.items():
        print(f"{name} {getattr(found.settings, name):g}: {reason}")
    print("\nFor the deployment engine in serve.yaml, in place of num_replicas:\n")
    print(autoscaling_config(found))


def rows_of(found: Suggestion) -> list[dict[str, Any]]:
    """Return the rows of all tables, then the settings, for JSON."""
    demands = [
        {"demand": name, "median": median, "p90": high, "most": most}
        for name, (median, high, most) in found.demands.items()
    ]
    settings = {"settings": asdict(found.settings), "reasons": found.reasons}
    days = [
        {
            "target_hit_ratio": one.settings.target_hit_ratio,
            "headroom_deviations": one.settings.headroom_deviations,
            "replica_hours": one.day.replica_hours,
            "slo_misses": one.day.slo_misses,
            "hit_ratio": one.day.hit_ratio,
        }
        for one in found.tried
    ]
    return [*(asdict(one) for one in found.curve), *demands, *days, settings]


def autoscaling_config(found: Suggestion) -> str:
    """Return the settings as YAML for `serve.yaml`: what isn't there is as by default."""
    settings, defaults = asdict(found.settings), asdict(AutoscaleSettings())
    kwargs = ", ".join(
        f"{name}: {settings[name]:g}"
        for name in found.reasons
        if not name.endswith("_replicas") and settings[name] != defaults[name]
    )
    lines = [
        "autoscaling_config:",
        f"  min_replicas: {settings['min_replicas']}",
        f"  max_replicas: {settings['max_replicas']}",
        "  upscale_delay_s: 0",
        "  downscale_delay_s: 0",
        "  policy:",
        "    policy_function: serve_app.autoscaler:CacheAutoscaler",
        f"    policy_kwargs: {{{kwargs}}}",
    ]
    return "\n".join(lines)

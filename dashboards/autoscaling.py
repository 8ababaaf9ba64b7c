"""How many replicas there should be, and what for."""

from dashboards.panel import Dashboard, Panel, Query, Row, Unit
from dashboards.promql import rate, ratios
from serve_app import metrics

NOT_ASKED = "Serve's autoscaling_config does not name serve_app.autoscaler"

WISHES = Row(
    "Replicas",
    (
        Panel(
            "Replicas wished for, and there",
            "Wished for and not there: they start, or the cluster has no room for them.",
            Unit.NUMBER,
            (
                Query(metrics.WISHED_REPLICAS.series, "wished for", NOT_ASKED),
                Query(metrics.REPLICAS.series, "there"),
                Query(f"sum({metrics.REPLICA_DRAINING.series})", "draining"),
            ),
        ),
        Panel(
            "Demands",
            "The largest one counts, within Serve's bounds. /warmturn/replicas has its reason.",
            Unit.NUMBER,
            (Query(metrics.DEMANDED_REPLICAS.series, "{{demand}}", NOT_ASKED),),
        ),
        Panel(
            "Stopped unexpectedly",
            metrics.SURPRISES.help,
            Unit.NUMBER,
            (Query(metrics.SURPRISES.series, "since the router started"),),
        ),
    ),
)

CAUSES = Row(
    "What the demands come from",
    (
        Panel(
            "Misses by kind",
            "Share of prompt tokens. More replicas help against evicted ones alone: elsewhere is "
            "the router's doing, and nothing helps against what was never seen.",
            Unit.RATIO,
            (
                Query(
                    ratios(
                        rate(metrics.MISSED_TOKENS.series, by="kind"),
                        rate(metrics.PROMPT_TOKENS.series),
                    ),
                    "{{kind}}",
                ),
            ),
        ),
        Panel(
            "Tokens still to be prefilled",
            "Of all replicas.",
            Unit.NUMBER,
            (Query(f"sum({metrics.REPLICA_UNCACHED_TOKENS.series})", "tokens"),),
        ),
        Panel(
            "GPU KV cache that requests use",
            "Mean of the replicas, as the router counts it.",
            Unit.RATIO,
            (Query(f"avg({metrics.REPLICA_PINNED.series})", "in use"),),
        ),
    ),
)

AUTOSCALING = Dashboard(
    "warmturn-autoscaling",
    "warmturn: autoscaling",
    "Wishes, their reasons, and what they came to.",
    (WISHES, CAUSES),
)

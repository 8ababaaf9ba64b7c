"""Where turns go, whether the load is even, and whether the router expects what happens."""

from dashboards.panel import Dashboard, Panel, Query, Row, Unit
from dashboards.promql import INTERVAL, counted, rate, ratio, ratios
from serve_app import metrics
from serve_app.metric import Metric

NO_TURN_WAITED = "no turn had to wait for a replica with room"
NO_LIMIT = "as many sessions may run as come"


def _per_replica(metric: Metric) -> Query:
    return Query(metric.series, "{{replica}}")


def _mean(total: Metric, turns: Metric) -> str:
    return ratio(rate(total.series), rate(turns.series))


LOAD = Row(
    "Load",
    (
        Panel(
            "Requests by replica",
            metrics.REPLICA_REQUESTS.help,
            Unit.NUMBER,
            (_per_replica(metrics.REPLICA_REQUESTS),),
        ),
        Panel(
            "Dispersion of requests across replicas",
            "Variance by mean, beside what placing each request at random would give. Below that "
            "the router evens the load out, above it piles it up.",
            Unit.NUMBER,
            (
                Query(metrics.DISPERSION.series, "now"),
                Query(f"avg_over_time({metrics.DISPERSION.series}[15m])", "mean of 15 minutes"),
                Query(f"1 - 1 / ({metrics.REPLICAS.series} > 0)", "at random (Poisson)"),
            ),
        ),
        Panel(
            "Resident sessions by replica",
            metrics.REPLICA_RESIDENT_SESSIONS.help,
            Unit.NUMBER,
            (_per_replica(metrics.REPLICA_RESIDENT_SESSIONS),),
        ),
        Panel(
            "Tokens still to be prefilled, by replica",
            metrics.REPLICA_UNCACHED_TOKENS.help,
            Unit.NUMBER,
            (_per_replica(metrics.REPLICA_UNCACHED_TOKENS),),
        ),
    ),
)

DECISIONS = Row(
    "Decisions",
    (
        Panel(
            "Decisions by rule",
            "new: a session's first turn. stayed: at its home. moved: to a new home. split: beside "
            "others of its session at its home.",
            Unit.PER_SECOND,
            (Query(rate(metrics.DECISIONS.series, by="rule"), "{{rule}}"),),
        ),
        Panel(
            "Moves and splits",
            "Share of decisions. A move costs a prefill or a transfer.",
            Unit.RATIO,
            tuple(
                Query(
                    ratio(
                        rate(f'{metrics.DECISIONS.series}{{rule="{rule}"}}'),
                        rate(metrics.DECISIONS.series),
                    ),
                    rule,
                )
                for rule in ("moved", "split")
            ),
        ),
        Panel(
            "Turns placed without the router, or not at all",
            "By rendezvous hashing while the router actor was silent; given up while waiting.",
            Unit.NUMBER,
            (
                Query(counted(metrics.ROUTER_FALLBACKS.series, INTERVAL), "without the router"),
                Query(f"sum(increase({metrics.UNPLACED_TURNS.series}[{INTERVAL}]))", "given up"),
            ),
        ),
        Panel(
            "Waiting at the router",
            "Requests that wait for a replica with room, and how long those waited that got one.",
            Unit.NUMBER,
            (
                Query(metrics.WAITING_REQUESTS.series, "waiting"),
                Query(
                    _mean(metrics.WAITED_SECONDS, metrics.WAITED_TURNS),
                    "mean wait, seconds",
                    NO_TURN_WAITED,
                ),
            ),
        ),
    ),
)

OVERLOAD = Row(
    "Overload",
    (
        Panel(
            "Sessions that run",
            "Those with a turn, or one not long ago. Once too many of their turns are late, no "
            "more may run for now; the others wait for a place.",
            Unit.NUMBER,
            (
                Query(metrics.RUNNING_SESSIONS.series, "run"),
                Query(metrics.SESSION_LIMIT.series, "may run", NO_LIMIT),
            ),
        ),
        Panel(
            "Late turns",
            metrics.LATE_RATIO.help,
            Unit.RATIO,
            (Query(metrics.LATE_RATIO.series, "late"),),
        ),
        Panel(
            "Turns that wait for a place, and that are turned away",
            "A turn that waited for max_park_s gets 429. Its session keeps its turn in the queue.",
            Unit.NUMBER,
            (
                Query(metrics.HELD_REQUESTS.series, "wait for a place"),
                Query(f"sum(increase({metrics.REFUSED_TURNS.series}[{INTERVAL}]))", "turned away"),
            ),
        ),
    ),
)

EXPECTATIONS = Row(
    "What was expected, and what came",
    (
        Panel(
            "Time to first token at the replica, mean",
            "Decisions are as good as this. If they differ, the rates of the replicas are wrong.",
            Unit.SECONDS,
            (
                Query(_mean(metrics.EXPECTED_TTFT_SECONDS, metrics.COMPARED_TURNS), "expected"),
                Query(_mean(metrics.ACTUAL_TTFT_SECONDS, metrics.COMPARED_TURNS), "actual"),
            ),
        ),
        Panel(
            "Cached share of prompts",
            "Far less than expected: the index is out of step with what replicas hold.",
            Unit.RATIO,
            (
                Query(
                    ratios(
                        rate(metrics.EXPECTED_CACHED_TOKENS.series, by="tier"),
                        rate(metrics.PROMPT_TOKENS.series),
                    ),
                    "expected: {{tier}}",
                ),
                Query(_mean(metrics.CACHED_TOKENS, metrics.PROMPT_TOKENS), "actual"),
            ),
        ),
    ),
)

KNOWLEDGE = Row(
    "What the router knows",
    (
        Panel(
            "Replicas in sync",
            "Whether the index knows all blocks of a replica; until it does, that one is routed to "
            "by session and load.",
            Unit.NUMBER,
            (
                _per_replica(metrics.REPLICA_SYNCED),
                Query(f"sum({metrics.REPLICA_DRAINING.series})", "draining"),
            ),
        ),
        Panel(
            "Index",
            "Blocks that any replica holds, sessions, and the age of the router in seconds.",
            Unit.NUMBER,
            (
                Query(metrics.INDEX_BLOCKS.series, "blocks"),
                Query(metrics.SESSIONS.series, "sessions"),
                Query(f"time() - {metrics.START_TIME.series}", "age"),
            ),
        ),
        Panel(
            "Turns whose prefix broke",
            "They do not extend an earlier turn of their session, by what changed.",
            Unit.PER_SECOND,
            (
                Query(
                    rate(metrics.PREFIX_BREAKS.series, by="kind"),
                    "{{kind}}",
                    "no turn broke with an earlier one",
                ),
            ),
        ),
        Panel(
            "Turns recorded, and not",
            "Turns written to the file that args.record names; those missing there, by why.",
            Unit.PER_SECOND,
            (
                Query(rate(metrics.RECORDED_TURNS.series), "recorded"),
                Query(rate(metrics.UNRECORDED_TURNS.series, by="reason"), "{{reason}}"),
            ),
        ),
        Panel(
            "Turns routed by session and load alone, and lines removed",
            "Prompts that could not be rendered, by reason; volatile lines removed, by pattern.",
            Unit.PER_SECOND,
            (
                Query(
                    rate(metrics.PROMPTS_NOT_RENDERED.series, by="reason"),
                    "{{reason}}",
                    "every prompt was rendered",
                ),
                Query(
                    rate(metrics.VOLATILE_LINES_REMOVED.series, by="pattern"),
                    "{{pattern}}",
                    "no prompt had a volatile line",
                ),
            ),
        ),
    ),
)

ROUTING = Dashboard(
    "warmturn-routing",
    "warmturn: routing",
    "Where turns go and why. One turn: /warmturn/decisions/<x-request-id> of any gateway.",
    (LOAD, DECISIONS, OVERLOAD, EXPECTATIONS, KNOWLEDGE),
)
